-- The statements of the driver, each one transaction. What takes more than one statement is a function in functions.sql.

-- name: now
select waybill_now();

-- name: commit_groups
select * from commit_groups(%s, %s, %s, %s, %s, %s, %s, %s);

-- name: select_idle_parents
-- Run after the commit that closed a child: when two commits close the last two children, the later one sees both closed.
select p.kind, p.id
from unnest(%s::text[], %s::text[]) as p(kind, id)
where exists (select from record r where r.id = p.id and r.kind = p.kind)
  and not exists (select from record c where c.parent_id = p.id and c.parent_kind = p.kind and c.open and c.parent_id is not null);

-- name: parents_with_open_children
select p.kind, p.id
from unnest(%s::text[], %s::text[]) as p(kind, id)
where exists (select from record c where c.parent_id = p.id and c.parent_kind = p.kind and c.open and c.parent_id is not null);

-- name: get
select r.kind, r.id, r.state, r.parent_kind, r.parent_id, r.owner, r.scope, r.priority, r.last_done, r.resume_count, r.error_count, r.message,
       r.session, r.locks, r.hold_names, r.blocked_by, r.open, r.host, r.idempotency_key, r.queue_position, r.seq, r.version, r.wake_count,
       r.wake_at, r.created, r.updated, d.names, d.bodies
from record r
left join lateral (select array_agg(d.name) as names, array_agg(d.body) as bodies from document d where d.kind = r.kind and d.id = r.id) d on true
where r.id = %(id)s and r.kind = %(kind)s;

-- name: get_many
select r.kind, r.id, r.state, r.parent_kind, r.parent_id, r.owner, r.scope, r.priority, r.last_done, r.resume_count, r.error_count, r.message,
       r.session, r.locks, r.hold_names, r.blocked_by, r.open, r.host, r.idempotency_key, r.queue_position, r.seq, r.version, r.wake_count,
       r.wake_at, r.created, r.updated, d.names, d.bodies
from unnest(%s::text[], %s::text[]) as u(kind, id)
cross join lateral (select * from record where record.id = u.id and record.kind = u.kind offset 0) r
left join lateral (select array_agg(d.name) as names, array_agg(d.body) as bodies from document d where d.kind = r.kind and d.id = r.id) d on true;

-- name: get_by_idempotency_key
select r.kind, r.id, r.state, r.parent_kind, r.parent_id, r.owner, r.scope, r.priority, r.last_done, r.resume_count, r.error_count, r.message,
       r.session, r.locks, r.hold_names, r.blocked_by, r.open, r.host, r.idempotency_key, r.queue_position, r.seq, r.version, r.wake_count,
       r.wake_at, r.created, r.updated, d.names, d.bodies
from record r
left join lateral (select array_agg(d.name) as names, array_agg(d.body) as bodies from document d where d.kind = r.kind and d.id = r.id) d on true
where r.idempotency_key = %(idempotency_key)s and r.kind = %(kind)s and r.idempotency_key is not null;

-- name: get_documents
select d.id, array_agg(d.name), array_agg(d.body)
from document d where d.kind = %s and d.id = any (%s) group by d.id;

-- name: get_history
select h.version, h.at, h.who, h.cause, h.before, h.after, h.why from history h where h.kind = %s and h.id = %s order by h.version;

-- name: count_by_state
-- The counts up to the last fold, and the deltas written since.
select t.state, sum(t.n)::bigint
from (select state, n from state_count where kind = %(kind)s and parent_kind = %(parent_kind)s and parent_id = %(parent_id)s
      union all
      select state, n from state_count_delta where kind = %(kind)s and parent_kind = %(parent_kind)s and parent_id = %(parent_id)s) t
group by t.state having sum(t.n) <> 0;

-- name: count_seen_by_state
-- The same of the scopes and owners whose records somebody may see; each term has its index.
select t.state, sum(t.n)::bigint
from (select c.state, c.n from state_count c where c.kind = %(kind)s and c.parent_kind = any (%(scopes)s::text[])
      union all
      select c.state, c.n from state_count c
      where c.parent_id = any (%(owners)s::text[]) and c.kind = %(kind)s and c.parent_kind >= '@' and c.parent_kind < 'A'
        and c.parent_kind <> all (%(scopes)s::text[])
      union all
      select c.state, c.n from state_count_delta c where c.kind = %(kind)s and c.parent_kind = any (%(scopes)s::text[])
      union all
      select c.state, c.n from state_count_delta c
      where c.parent_id = any (%(owners)s::text[]) and c.kind = %(kind)s and c.parent_kind >= '@' and c.parent_kind < 'A'
        and c.parent_kind <> all (%(scopes)s::text[])) t
group by t.state having sum(t.n) <> 0;

-- name: fold_count_deltas
-- Two that fold at once take different deltas, and add them in the same order.
with folded as (
    delete from state_count_delta
    where ctid = any (array(select ctid from state_count_delta limit %s for update skip locked))
    returning kind, parent_kind, parent_id, state, n)
insert into state_count as t (kind, parent_kind, parent_id, state, n)
select kind, parent_kind, parent_id, state, sum(n) from folded group by kind, parent_kind, parent_id, state order by 1, 2, 3, 4
on conflict (kind, parent_kind, parent_id, state) do update set n = t.n + excluded.n;

-- name: remove_empty_counts
delete from state_count where n = 0;

-- name: open_session
insert into session (name, host, since, ttl, expires, about, progress)
select %(name)s, %(host)s, t.now, %(ttl)s, t.now + %(ttl)s, %(about)s, '{}'
from (select waybill_now() as now) t
returning since;

-- name: renew_session
-- Refused only when the row is gone: a session ends by its removal alone, never by comparing clocks here.
update session set expires = t.now + ttl, progress = coalesce(%(progress)s::bytea, progress)
from (select waybill_now() as now) t
where name = %(name)s
returning t.now;

-- name: list_session_requests
select a.kind, a.id, a.action, a.who, a.why, a.args
from action_request a join record r on r.id = a.id and r.kind = a.kind
where r.session = %s;

-- name: raise_queue_positions
-- Written with the renewal of a session and never by a claim: all workers would wait for each other.
insert into queue_position as t (kind, highest_position)
select n.kind, n.highest_position from unnest(%s::text[], %s::bigint[]) as n(kind, highest_position) order by n.kind
on conflict (kind) do update set highest_position = greatest(t.highest_position, excluded.highest_position);

-- name: list_sessions
select name, host, since, expires, about, progress from session order by since, name;

-- name: find_expired_sessions
select t.now, s.name, s.ttl from (select waybill_now() as now) t left join session s on s.expires <= t.now;

-- name: end_sessions
select * from end_sessions(%s, %s);

-- name: claim_records
select * from claim_records(%s, %s, %s, %s, %s, %s);

-- name: add_action_request
-- The row is locked against the commit that releases the record: that commit either sees the request, or this statement sees the release.
with target as materialized (
    select r.kind, r.id, r.session from record r where r.id = %(id)s and r.kind = %(kind)s for share),
added as (
    insert into action_request (kind, id, action, who, why, args)
    select h.kind, h.id, %(action)s, %(who)s, %(why)s, %(args)s from target h where h.session is not null
    on conflict do nothing returning 1)
select (select count(*) from target), (select count(*) from target where session is not null), (select count(*) from added);

-- name: get_action_request
select a.action from action_request a where a.kind = %s and a.id = %s;

-- name: list_action_requests
select a.kind, a.id, a.action, a.who, a.why, a.args
from action_request a join record r on r.id = a.id and r.kind = a.kind
where r.session is null
order by r.seq limit %s;

-- name: set_hold
insert into hold as m (name, who, why) values (%s, %s, %s)
on conflict (name) do update set who = excluded.who, why = excluded.why;

-- name: clear_hold
delete from hold where name = %s returning name;

-- name: list_holds
select name, who, why from hold order by name;

-- name: unblock_records
-- In the order of (kind, id) and waiting: a record that is locked now must not be left blocked.
with page as materialized (
    select r.kind, r.id from record r where r.blocked_by = %s limit %s),
locked as materialized (
    select r.kind, r.id from page s join record r on r.id = s.id and r.kind = s.kind
    where r.blocked_by = %s order by r.kind, r.id for update of r)
update record r set blocked_by = null from locked l where r.id = l.id and r.kind = l.kind
returning 1;

-- name: release_due_waits
with due as materialized (
    select r.kind, r.id from record r
    where r.blocked_by = 'wait' and r.wake_at <= (select waybill_now())  -- evaluated once: otherwise the index could not be used
    order by r.wake_at, r.priority, r.seq limit %s for update skip locked),
released as (
    update record r set blocked_by = null, wake_at = 0 from due d where r.id = d.id and r.kind = d.kind returning 1)
select count(*) from released;

-- name: get_next_due
select t.now, (select r.wake_at from record r where r.blocked_by = 'wait' order by r.wake_at, r.priority, r.seq limit 1)
from (select waybill_now() as now) t;

-- name: list_block_reasons
-- The distinct values of blocked_by in a range, each found by one step into the index.
with recursive reasons as (
    (select r.blocked_by from record r where r.blocked_by >= %(from)s and r.blocked_by < %(to)s order by r.blocked_by limit 1)
    union all
    select (select r.blocked_by from record r where r.blocked_by > s.blocked_by and r.blocked_by < %(to)s order by r.blocked_by limit 1)
    from reasons s where s.blocked_by is not null)
select blocked_by from reasons where blocked_by is not null limit %(limit)s;

-- name: list_locks
select k.name, k.sort, o.kinds, o.ids,
       case when k.sort = 'exclusive' then 1 else (select count(*) from record_lock_share s where s.name = k.name) end,
       case when k.sort = 'counted' then (select l.n from record_lock_limit l where l.name = k.name) end
from record_lock k
cross join lateral (
    select array_agg(o.kind) as kinds, array_agg(o.id) as ids
    from (select w.kind, w.id from record_lock_owner w where w.name = k.name order by w.kind, w.id limit %(owners)s) o) o
where k.name > %(after)s order by k.name limit %(limit)s;

-- name: get_lock_owner
select k.kind, k.id from record_lock_owner k where k.name = %s order by k.kind, k.id limit 1;

-- name: remove_unused_lock_limits
-- Of counted locks that nobody owns or waits for, and whose limit nobody has set for a long time.
delete from record_lock_limit l
where l.at < waybill_now() - %s
  and not exists (select from record_lock k where k.name = l.name)
  and not exists (select from record r where r.blocked_by = 'lock ' || l.name);

-- name: remove_empty_gates
select remove_empty_gates(%s);

-- name: unblock_lock_waiters
select unblock_lock_waiters(%s);

-- name: find_idle_parents
-- A page of the parents that wait for children, and for each whether it has no open child left. Filtered in SQL, a million parents that do
-- have open children would all be read by one call.
select p.kind, p.id,
       not exists (select from record c where c.parent_id = p.id and c.parent_kind = p.kind and c.open and c.parent_id is not null),
       p.priority, p.seq
from (select r.kind, r.id, r.priority, r.seq from record r
      where r.blocked_by = 'children' and r.wake_at = 0 and (r.priority, r.seq) > (%s, %s)
      order by r.wake_at, r.priority, r.seq limit %s) p;

-- name: remember
insert into remembered_value (name, value) values (%s, %s) on conflict do nothing;

-- name: get_remembered_value
select value from remembered_value where name = %s;
