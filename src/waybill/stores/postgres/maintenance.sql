-- The rules of check(): for each, a statement that finds the violations and one that repairs one of them, if it still exists.

-- name: find_counts
-- Both in one statement, so that a commit is seen in both or in neither.
with stored as (
    select kind, parent_kind, parent_id, state, sum(n) as n
    from (select * from state_count union all select * from state_count_delta) t
    group by kind, parent_kind, parent_id, state),
actual as (
    select kind, '' as parent_kind, '' as parent_id, state, count(*) as n from record group by kind, state
    union all
    select kind, parent_kind, parent_id, state, count(*) from record where parent_id is not null group by kind, parent_kind, parent_id, state
    union all
    select kind, '@' || scope, owner, state, count(*) from record where owner <> '' or scope <> '' group by kind, scope, owner, state)
select kind, parent_kind, parent_id, state, coalesce(t.n, 0)::bigint, coalesce(c.n, 0)
from stored t full join actual c using (kind, parent_kind, parent_id, state)
where coalesce(t.n, 0) <> coalesce(c.n, 0)
order by 1, 2, 3, 4 limit %(limit)s;

-- name: repair_counts
with stored as (
    select coalesce(sum(n), 0) as n
    from (select * from state_count union all select * from state_count_delta) t
    where t.kind = %(kind)s and t.parent_kind = %(parent_kind)s and t.parent_id = %(parent_id)s and t.state = %(state)s),
actual as (
    select count(*) as n from record r
    where r.kind = %(kind)s and r.state = %(state)s
      and case when %(parent_kind)s like '@%%' then '@' || r.scope = %(parent_kind)s and r.owner = %(parent_id)s
               else %(parent_id)s = '' or (r.parent_kind = %(parent_kind)s and r.parent_id = %(parent_id)s) end)
insert into state_count_delta (kind, parent_kind, parent_id, state, n)
select %(kind)s, %(parent_kind)s, %(parent_id)s, %(state)s, c.n - t.n from stored t, actual c where c.n <> t.n
returning 1;

-- name: find_locks
select k.name, k.kind, k.id from record_lock_owner k left join record r on r.id = k.id and r.kind = k.kind
where r.id is null or not exists (select from unnest(r.locks) l where lock_name_of(l) = k.name and lock_sort_of(l) = k.sort)
order by k.name, k.kind, k.id limit %(limit)s;

-- name: repair_locks
with gate as materialized (
    select k.name, k.sort from record_lock k where k.name = %(name)s for update),
unasked as materialized (
    select g.name from gate g
    where not exists (select from record r cross join unnest(r.locks) l
                      where r.id = %(id)s and r.kind = %(kind)s and lock_name_of(l) = g.name and lock_sort_of(l) = g.sort)),
dropped as (
    delete from record_lock k using unasked u
    where k.name = u.name and k.kind = %(kind)s and k.id = %(id)s returning k.name),
left_out as (
    delete from record_lock_share s using unasked u
    where s.name = u.name and s.kind = %(kind)s and s.id = %(id)s returning s.name)
select name from dropped union all select name from left_out;

-- name: find_gates
-- A shared or counted lock has a gate as long as it has owners.
select k.name from record_lock k
where k.sort <> 'exclusive' and not exists (select from record_lock_share s where s.name = k.name)
union
select s.name from record_lock_share s
where not exists (select from record_lock k where k.name = s.name and k.sort <> 'exclusive')
order by 1 limit %(limit)s;

-- name: repair_gates
with removed as (
    delete from record_lock k
    where k.name = %(name)s and k.sort <> 'exclusive' and not exists (select from record_lock_share s where s.name = k.name) returning 1),
dropped as (
    delete from record_lock_share s
    where s.name = %(name)s and not exists (select from record_lock k where k.name = s.name and k.sort <> 'exclusive') returning 1)
select 1 from removed union all select 1 from dropped;

-- name: find_claims
select r.kind, r.id, r.session from record r left join session s on s.name = r.session
where r.session is not null and s.name is null
order by r.seq limit %(limit)s;

-- name: repair_claims
update record r set session = null, version = r.version + 1
where r.id = %(id)s and r.kind = %(kind)s and r.session is not null and not exists (select from session s where s.name = r.session)
returning 1;

-- name: find_missing_locks
-- A claimed record owns every lock that it asks for: a claim takes them, and so does a checkpoint. Not one that was claimed on hold.
select r.kind, r.id, lock_name_of(a.lock) from record r, unnest(r.locks) a (lock)
where r.session is not null and r.hold_names = '{}'
  and not exists (select from record_lock_owner k
                  where k.name = lock_name_of(a.lock) and k.sort = lock_sort_of(a.lock) and k.kind = r.kind and k.id = r.id)
order by r.seq limit %(limit)s;

-- name: repair_missing_locks
update record r set session = null, version = r.version + 1
where r.id = %(id)s and r.kind = %(kind)s and r.session is not null and r.hold_names = '{}'
  and exists (select from unnest(r.locks) a (lock)
              where not exists (select from record_lock_owner k
                                where k.name = lock_name_of(a.lock) and k.sort = lock_sort_of(a.lock) and k.kind = r.kind and k.id = r.id))
returning 1;

-- name: find_orphan_documents
select distinct d.kind, d.id from document d left join record r on r.id = d.id and r.kind = d.kind
where r.id is null
order by 1, 2 limit %(limit)s;

-- name: repair_orphan_documents
delete from document d
where d.kind = %(kind)s and d.id = %(id)s and not exists (select from record r where r.id = d.id and r.kind = d.kind)
returning 1;

-- name: list_documents
-- A page of documents. The driver checks whether they are JSON, by the same rules as every reader.
select d.kind, d.id, d.name, d.body from document d
where (d.kind, d.id, d.name) > (%(kind)s, %(id)s, %(name)s)
order by d.kind, d.id, d.name limit %(limit)s;

-- name: find_orphan_history
select distinct h.kind, h.id from history h left join record r on r.id = h.id and r.kind = h.kind
where r.id is null
order by 1, 2 limit %(limit)s;

-- name: repair_orphan_history
delete from history h
where h.kind = %(kind)s and h.id = %(id)s and not exists (select from record r where r.id = h.id and r.kind = h.kind)
returning 1;

-- name: find_orphan_action_requests
select a.kind, a.id, a.action from action_request a left join record r on r.id = a.id and r.kind = a.kind
where r.id is null
order by 1, 2 limit %(limit)s;

-- name: repair_orphan_action_requests
delete from action_request a
where a.kind = %(kind)s and a.id = %(id)s and not exists (select from record r where r.id = a.id and r.kind = a.kind)
returning 1;

-- name: find_lock_waiters
-- When no record owns a lock, one of those that ask for it must be about to take it: not claimed and not blocked.
select r.kind, r.id, substr(r.blocked_by, 6)
from record r
where r.blocked_by >= 'lock ' and r.blocked_by < 'lock!'
  and not exists (select from record_lock k where k.name = substr(r.blocked_by, 6))
  and not exists (select from record w cross join unnest(w.locks) l
                  where w.session is null and w.blocked_by is null and w.locks <> '{}' and lock_name_of(l) = substr(r.blocked_by, 6))
order by r.seq limit %(limit)s;

-- name: repair_lock_waiters
update record r set blocked_by = null
where r.id = %(id)s and r.kind = %(kind)s and r.blocked_by >= 'lock ' and r.blocked_by < 'lock!'
  and not exists (select from record_lock k where k.name = substr(r.blocked_by, 6))
returning 1;

-- name: find_hold_waiters
select r.kind, r.id, substr(r.blocked_by, 6)
from record r
where r.blocked_by >= 'hold ' and r.blocked_by < 'hold!' and not exists (select from hold m where m.name = substr(r.blocked_by, 6))
order by r.seq limit %(limit)s;

-- name: repair_hold_waiters
update record r set blocked_by = null
where r.id = %(id)s and r.kind = %(kind)s and r.blocked_by >= 'hold ' and r.blocked_by < 'hold!'
  and not exists (select from hold m where m.name = substr(r.blocked_by, 6))
returning 1;

-- name: find_joins
select r.kind, r.id
from record r
where r.blocked_by = 'children'
  and exists (select from record c where c.parent_id = r.id and c.parent_kind = r.kind)
  and not exists (select from record c where c.parent_id = r.id and c.parent_kind = r.kind and c.open)
order by r.seq limit %(limit)s;

-- name: repair_joins
update record r set blocked_by = null, wake_count = r.wake_count + 1
where r.id = %(id)s and r.kind = %(kind)s and r.blocked_by = 'children'
  and not exists (select from record c where c.parent_id = r.id and c.parent_kind = r.kind and c.open)
returning 1;

-- name: find_old_snapshots
-- Row versions that an open transaction may still read cannot be vacuumed, and every claim steps over them.
select a.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''), extract(epoch from clock_timestamp() - a.xact_start)::double precision
from pg_stat_activity a
where a.backend_xmin is not null and a.datname = current_database() and a.pid <> pg_backend_pid()
  and a.backend_type not in ('autovacuum worker', 'parallel worker') -- the server's own processes, which end by themselves
  and a.xact_start < clock_timestamp() - %(seconds)s * interval '1 second'
order by a.xact_start limit 1;
