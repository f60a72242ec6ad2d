-- What must hold of the store's own tables: each rule a statement that finds where it does not, and one that mends it if it is still so.

-- name: find_tally
-- Told and counted in one statement, so that a commit is seen in both or in neither.
with told as (
    select kind, parent_kind, parent_id, state, sum(n) as n
    from (select * from tally union all select * from tally_delta) t
    group by kind, parent_kind, parent_id, state),
counted as (
    select kind, '' as parent_kind, '' as parent_id, state, count(*) as n from record group by kind, state
    union all
    select kind, parent_kind, parent_id, state, count(*) from record where parent_id is not null group by kind, parent_kind, parent_id, state)
select kind, parent_kind, parent_id, state, coalesce(t.n, 0)::bigint, coalesce(c.n, 0)
from told t full join counted c using (kind, parent_kind, parent_id, state)
where coalesce(t.n, 0) <> coalesce(c.n, 0)
order by 1, 2, 3, 4 limit %(limit)s;

-- name: mend_tally
with told as (
    select coalesce(sum(n), 0) as n
    from (select * from tally union all select * from tally_delta) t
    where t.kind = %(kind)s and t.parent_kind = %(parent_kind)s and t.parent_id = %(parent_id)s and t.state = %(state)s),
counted as (
    select count(*) as n from record r
    where r.kind = %(kind)s and r.state = %(state)s
      and (%(parent_id)s = '' or (r.parent_kind = %(parent_kind)s and r.parent_id = %(parent_id)s)))
insert into tally_delta (kind, parent_kind, parent_id, state, n)
select %(kind)s, %(parent_kind)s, %(parent_id)s, %(state)s, c.n - t.n from told t, counted c where c.n <> t.n
returning 1;

-- name: find_keys
select k.name, k.kind, k.id from key k left join record r on r.id = k.id and r.kind = k.kind
where r.id is null or k.name <> all (r.keys)
order by k.name limit %(limit)s;

-- name: mend_keys
with dropped as (
    delete from key k
    where k.name = %(name)s and not exists (select from record r where r.id = k.id and r.kind = k.kind and k.name = any (r.keys))
    returning k.name)
select pass_keys(array[name]) from dropped;

-- name: find_holders
select r.kind, r.id, r.session from record r left join session s on s.name = r.session
where r.session is not null and s.name is null
order by r.seq limit %(limit)s;

-- name: mend_holders
update record r set session = null, version = r.version + 1
where r.id = %(id)s and r.kind = %(kind)s and r.session is not null and not exists (select from session s where s.name = r.session)
returning 1;

-- name: find_unlocked
-- What is worked on has all that it asks for: a claim takes it, and so does a save.
select r.kind, r.id, a.name from record r, unnest(r.keys) a (name)
where r.session is not null and not exists (select from key k where k.name = a.name and k.kind = r.kind and k.id = r.id)
order by r.seq limit %(limit)s;

-- name: mend_unlocked
update record r set session = null, version = r.version + 1
where r.id = %(id)s and r.kind = %(kind)s and r.session is not null
  and exists (select from unnest(r.keys) a (name)
              where not exists (select from key k where k.name = a.name and k.kind = r.kind and k.id = r.id))
returning 1;

-- name: find_documents
select distinct d.kind, d.id from document d left join record r on r.id = d.id and r.kind = d.kind
where r.id is null
order by 1, 2 limit %(limit)s;

-- name: mend_documents
delete from document d
where d.kind = %(kind)s and d.id = %(id)s and not exists (select from record r where r.id = d.id and r.kind = d.kind)
returning 1;

-- name: documents_after
-- A page of them; what is in one is judged by whoever reads it, by the same rules as any reader.
select d.kind, d.id, d.name, d.body from document d
where (d.kind, d.id, d.name) > (%(kind)s, %(id)s, %(name)s)
order by d.kind, d.id, d.name limit %(limit)s;

-- name: find_history
select distinct h.kind, h.id from history h left join record r on r.id = h.id and r.kind = h.kind
where r.id is null
order by 1, 2 limit %(limit)s;

-- name: mend_history
delete from history h
where h.kind = %(kind)s and h.id = %(id)s and not exists (select from record r where r.id = h.id and r.kind = h.kind)
returning 1;

-- name: find_asks
select a.kind, a.id, a.action from ask a left join record r on r.id = a.id and r.kind = a.kind
where r.id is null
order by 1, 2 limit %(limit)s;

-- name: mend_asks
delete from ask a
where a.kind = %(kind)s and a.id = %(id)s and not exists (select from record r where r.id = a.id and r.kind = a.kind)
returning 1;

-- name: find_waiters
-- Of the waiters of a key that nobody holds one must be on its way to it: free, not parked, and asking for it.
select r.kind, r.id, substr(r.parked, 5)
from record r
where r.parked >= 'key ' and r.parked < 'key!'
  and not exists (select from key k where k.name = substr(r.parked, 5))
  and not exists (select from record w where w.session is null and w.parked is null and substr(r.parked, 5) = any (w.keys))
order by r.seq limit %(limit)s;

-- name: mend_waiters
update record r set parked = null
where r.id = %(id)s and r.kind = %(kind)s and r.parked >= 'key ' and r.parked < 'key!'
  and not exists (select from key k where k.name = substr(r.parked, 5))
returning 1;

-- name: find_stopped
select r.kind, r.id, substr(r.parked, 6)
from record r
where r.parked >= 'mark ' and r.parked < 'mark!' and not exists (select from mark m where m.name = substr(r.parked, 6))
order by r.seq limit %(limit)s;

-- name: mend_stopped
update record r set parked = null
where r.id = %(id)s and r.kind = %(kind)s and r.parked >= 'mark ' and r.parked < 'mark!'
  and not exists (select from mark m where m.name = substr(r.parked, 6))
returning 1;

-- name: find_joins
select r.kind, r.id
from record r
where r.parked = 'children'
  and exists (select from record c where c.parent_id = r.id and c.parent_kind = r.kind)
  and not exists (select from record c where c.parent_id = r.id and c.parent_kind = r.kind and c.open)
order by r.seq limit %(limit)s;

-- name: mend_joins
update record r set parked = null, nudges = r.nudges + 1
where r.id = %(id)s and r.kind = %(kind)s and r.parked = 'children'
  and not exists (select from record c where c.parent_id = r.id and c.parent_kind = r.kind and c.open)
returning 1;

-- name: find_snapshots
-- Rows that somebody's open transaction may still want to see cannot be cleaned away, and every claim walks over them.
select a.pid, coalesce(a.usename, ''), coalesce(a.application_name, ''), extract(epoch from clock_timestamp() - a.xact_start)::double precision
from pg_stat_activity a
where a.backend_xmin is not null and a.datname = current_database() and a.pid <> pg_backend_pid()
  and a.backend_type not in ('autovacuum worker', 'parallel worker') -- the server's own, which end by themselves
  and a.xact_start < clock_timestamp() - %(seconds)s * interval '1 second'
order by a.xact_start limit 1;
