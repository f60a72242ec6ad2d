-- The statements of the driver, each one transaction. What needs more than one statement is a function in functions.sql.

-- name: now
select waybill_now();

-- name: commit
select * from commit_groups(%s, %s, %s, %s, %s, %s, %s);

-- name: look_idle
-- Looked at after the commit that closed a child: of two that close the last two children, the later one sees both closed.
select p.kind, p.id
from unnest(%s::text[], %s::text[]) as p(kind, id)
where exists (select from record r where r.id = p.id and r.kind = p.kind)
  and not exists (select from record c where c.parent_id = p.id and c.parent_kind = p.kind and c.open and c.parent_id is not null);

-- name: open_parents
select p.kind, p.id
from unnest(%s::text[], %s::text[]) as p(kind, id)
where exists (select from record c where c.parent_id = p.id and c.parent_kind = p.kind and c.open and c.parent_id is not null);

-- name: get
select r.kind, r.id, r.state, r.parent_kind, r.parent_id, r.owner, r.priority, r.last_done, r.retries, r.tries, r.message, r.session,
       r.keys, r.gates, r.parked, r.open, r.host, r.request, r.turn, r.seq, r.version, r.nudges, r.wake_at, r.created, r.updated,
       d.names, d.bodies
from record r
left join lateral (select array_agg(d.name) as names, array_agg(d.body) as bodies from document d where d.kind = r.kind and d.id = r.id) d on true
where r.id = %(id)s and r.kind = %(kind)s;

-- name: requested
select r.kind, r.id, r.state, r.parent_kind, r.parent_id, r.owner, r.priority, r.last_done, r.retries, r.tries, r.message, r.session,
       r.keys, r.gates, r.parked, r.open, r.host, r.request, r.turn, r.seq, r.version, r.nudges, r.wake_at, r.created, r.updated,
       d.names, d.bodies
from record r
left join lateral (select array_agg(d.name) as names, array_agg(d.body) as bodies from document d where d.kind = r.kind and d.id = r.id) d on true
where r.request = %(request)s and r.kind = %(kind)s and r.request is not null;

-- name: documents
select d.id, array_agg(d.name), array_agg(d.body)
from document d where d.kind = %s and d.id = any (%s) group by d.id;

-- name: history
select h.version, h.at, h.who, h.event, h.before, h.after, h.why from history h where h.kind = %s and h.id = %s order by h.version;

-- name: tally
-- What was counted up to the last sweep, and what was written since.
select t.state, sum(t.n)::bigint
from (select state, n from tally where kind = %(kind)s and parent_kind = %(parent_kind)s and parent_id = %(parent_id)s
      union all
      select state, n from tally_delta where kind = %(kind)s and parent_kind = %(parent_kind)s and parent_id = %(parent_id)s) t
group by t.state having sum(t.n) <> 0;

-- name: fold
-- One writer folds what another does not; both add in the same order.
with eaten as (
    delete from tally_delta
    where ctid = any (array(select ctid from tally_delta limit %s for update skip locked))
    returning kind, parent_kind, parent_id, state, n)
insert into tally as t (kind, parent_kind, parent_id, state, n)
select kind, parent_kind, parent_id, state, sum(n) from eaten group by kind, parent_kind, parent_id, state order by 1, 2, 3, 4
on conflict (kind, parent_kind, parent_id, state) do update set n = t.n + excluded.n;

-- name: drop_empty_tallies
delete from tally where n = 0;

-- name: open_session
insert into session (name, host, since, ttl, expires, about, progress)
select %(name)s, %(host)s, t.now, %(ttl)s, t.now + %(ttl)s, %(about)s, '{}'
from (select waybill_now() as now) t
returning since;

-- name: renew
-- Refused only when the row is gone: who is dead is decided by its removal alone, never by looking at the clock here.
update session set expires = t.now + ttl, progress = coalesce(%(progress)s::bytea, progress)
from (select waybill_now() as now) t
where name = %(name)s
returning t.now;

-- name: asked
select a.kind, a.id, a.action, a.who, a.why, a.args
from ask a join record r on r.id = a.id and r.kind = a.kind
where r.session = %s;

-- name: note_turns
-- How far the queues have come, written with the heartbeat and never by a claim: all workers would wait for each other.
insert into turn as t (kind, turn) select n.kind, n.turn from unnest(%s::text[], %s::bigint[]) as n(kind, turn) order by n.kind
on conflict (kind) do update set turn = greatest(t.turn, excluded.turn);

-- name: sessions
select name, host, since, expires, about, progress from session order by since, name;

-- name: expired
select t.now, s.name, s.ttl from (select waybill_now() as now) t left join session s on s.expires <= t.now;

-- name: end_sessions
select * from end_sessions(%s, %s);

-- name: claim
select * from claim_records(%s, %s, %s, %s, %s, %s);

-- name: ask
-- The row is locked against the commit that lets go of the record: it either sees the request or is seen to have let go.
with held as materialized (
    select r.kind, r.id, r.session from record r where r.id = %(id)s and r.kind = %(kind)s for share),
left_with as (
    insert into ask (kind, id, action, who, why, args)
    select h.kind, h.id, %(action)s, %(who)s, %(why)s, %(args)s from held h where h.session is not null
    on conflict do nothing returning 1)
select (select count(*) from held), (select count(*) from held where session is not null), (select count(*) from left_with);

-- name: pending
select a.action from ask a where a.kind = %s and a.id = %s;

-- name: asks
select a.kind, a.id, a.action, a.who, a.why, a.args
from ask a join record r on r.id = a.id and r.kind = a.kind
where r.session is null
order by r.seq limit %s;

-- name: mark_on
insert into mark as m (name, who, why) values (%s, %s, %s)
on conflict (name) do update set who = excluded.who, why = excluded.why;

-- name: mark_off
delete from mark where name = %s returning name;

-- name: marks
select name, who, why from mark order by name;

-- name: unpark
-- In the order of (kind, id) and waiting: one that is locked now must not be left behind.
with portion as materialized (
    select r.kind, r.id from record r where r.parked = %s limit %s),
locked as materialized (
    select r.kind, r.id from portion s join record r on r.id = s.id and r.kind = s.kind
    where r.parked = %s order by r.kind, r.id for update of r)
update record r set parked = null from locked l where r.id = l.id and r.kind = l.kind
returning 1;

-- name: wake
with due as materialized (
    select r.kind, r.id from record r
    where r.parked = 'wait' and r.wake_at <= (select waybill_now())  -- once: it could not be looked up in the index otherwise
    order by r.wake_at, r.priority, r.turn, r.seq limit %s for update skip locked),
woken as (
    update record r set parked = null, wake_at = 0 from due d where r.id = d.id and r.kind = d.kind returning 1)
select count(*) from woken;

-- name: next_wait
select t.now, (select r.wake_at from record r where r.parked = 'wait' order by r.wake_at, r.priority, r.turn, r.seq limit 1)
from (select waybill_now() as now) t;

-- name: waited_for
-- The different reasons why records are parked, each found by one step into the index.
with recursive reasons as (
    (select r.parked from record r where r.parked >= %(from)s and r.parked < %(to)s order by r.parked limit 1)
    union all
    select (select r.parked from record r where r.parked > s.parked and r.parked < %(to)s order by r.parked limit 1)
    from reasons s where s.parked is not null)
select parked from reasons where parked is not null limit %(limit)s;

-- name: held_keys
select k.name, k.kind, k.id from key k where k.name > %(after)s order by k.name limit %(limit)s;

-- name: holder
select k.kind, k.id from key k where k.name = %s;

-- name: free_keys
select n.name from unnest(%s::text[]) as n(name) where not exists (select from key k where k.name = n.name);

-- name: pass_keys
select pass_keys(%s);

-- name: idle_parents
-- A portion of those that wait, and of each whether it waits for nothing: at a million that wait for something all would be looked at.
select p.kind, p.id,
       not exists (select from record c where c.parent_id = p.id and c.parent_kind = p.kind and c.open and c.parent_id is not null),
       p.priority, p.turn, p.seq
from (select r.kind, r.id, r.priority, r.turn, r.seq from record r
      where r.parked = 'children' and r.wake_at = 0 and (r.priority, r.turn, r.seq) > (%s, %s, %s)
      order by r.wake_at, r.priority, r.turn, r.seq limit %s) p;

-- name: remember
insert into memory (name, value) values (%s, %s) on conflict do nothing;

-- name: remembered
select value from memory where name = %s;
