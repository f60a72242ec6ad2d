-- What must agree in a store's file. For each rule one statement that finds what does not, and one that mends it all.

-- name: find_tally
-- Where the counters and the records differ: kind, parent, state, counted, true.
select kind, parent_kind, parent_id, state, coalesce(c.n, 0), coalesce(t.n, 0)
  from (select kind, '' as parent_kind, '' as parent_id, state, count(*) as n from record group by kind, state
        union all
        select kind, parent_kind, parent_id, state, count(*) from record where parent_id is not null group by 1, 2, 3, 4) t
  full join tally c using (kind, parent_kind, parent_id, state)
 where c.n is not t.n

-- name: mend_tally_clear
delete from tally

-- name: mend_tally
insert into tally
select kind, '', '', state, count(*) from record group by kind, state
union all
select kind, parent_kind, parent_id, state, count(*) from record where parent_id is not null group by 1, 2, 3, 4

-- name: find_held
select r.kind, r.id, r.session from record r where r.session is not null and not exists (select 1 from session s where s.name = r.session)

-- name: mend_held
update record set session = null, version = version + 1
 where session is not null and not exists (select 1 from session s where s.name = record.session)

-- name: find_keys
-- A key is held by a record that asks for it. Of a record whose list is damaged nobody knows what it asks for.
select k.name, r.kind, r.id from key k join record r on r.seq = k.record
 where (r.keys = '' or json_valid(r.keys))
   and not exists (select 1 from json_each(case when json_valid(r.keys) then r.keys else '[]' end) j where j.value = k.name)

-- name: mend_keys
delete from key
 where exists (select 1 from record r
                where r.seq = key.record and (r.keys = '' or json_valid(r.keys))
                  and not exists (select 1 from json_each(case when json_valid(r.keys) then r.keys else '[]' end) j where j.value = key.name))

-- name: find_unlocked
-- What is worked on has all that it asks for: a claim takes it, and so does a save.
select r.kind, r.id, j.value
  from record r, json_each(case when json_valid(r.keys) then r.keys else '[]' end) j
 where r.session is not null and not exists (select 1 from key k where k.name = j.value and k.record = r.seq)

-- name: mend_unlocked
update record set session = null, version = version + 1
 where session is not null
   and exists (select 1 from json_each(case when json_valid(record.keys) then record.keys else '[]' end) j
                where not exists (select 1 from key k where k.name = j.value and k.record = record.seq))

-- name: find_waiters
-- Of the waiters of a key that nobody holds one must be on its way to it: free, not parked, and asking for it.
select r.kind, r.id, substr(r.parked, 5) from record r
 where r.parked >= 'key ' and r.parked < 'key!'
   and not exists (select 1 from key k where k.name = substr(r.parked, 5))
   and not exists (select 1 from record w, json_each(case when json_valid(w.keys) then w.keys else '[]' end) j
                    where w.keys <> '' and w.session is null and w.parked is null and j.value = substr(r.parked, 5))

-- name: mend_waiters
update record set parked = null
 where parked >= 'key ' and parked < 'key!' and not exists (select 1 from key k where k.name = substr(record.parked, 5))

-- name: find_stopped
select r.kind, r.id, substr(r.parked, 6) from record r
 where r.parked >= 'mark ' and r.parked < 'mark!' and not exists (select 1 from mark m where m.name = substr(r.parked, 6))

-- name: mend_stopped
update record set parked = null
 where parked >= 'mark ' and parked < 'mark!' and not exists (select 1 from mark m where m.name = substr(record.parked, 6))

-- name: find_lists
-- Columns that hold a list of names, or nothing.
select kind, id, name from (select kind, id, 'keys' as name, keys as list from record union all select kind, id, 'gates', gates from record)
 where list <> ''
   and case when not json_valid(list) then 1
            when json_type(list) <> 'array' then 1
            else exists (select 1 from json_each(list) j where j.type <> 'text') end

-- name: find_bodies
select r.kind, r.id, d.name from document d join record r on r.seq = d.record where not json_valid(cast(d.body as text))

-- name: find_counter
select c.seq, (select max(seq) from record) from counter c where c.seq < (select max(seq) from record)

-- name: mend_counter
update counter set seq = (select max(seq) from record) where seq < (select max(seq) from record)

-- name: find_clock
select newest - ?1 from counter where newest > ?1 + 60

-- name: mend_clock
update counter set newest = ?1 where newest > ?1 + 60

-- name: mend_waits
-- What was told to wait by the clock that was wrong; a step that is called too early answers Wait again.
update record set wake_at = ?1 where parked = 'wait' and updated > ?1 + 60

-- name: mend_document
delete from document where not exists (select 1 from record where seq = document.record)

-- name: mend_history
delete from history where not exists (select 1 from record where seq = history.record)

-- name: mend_key
delete from key where not exists (select 1 from record where seq = key.record)

-- name: mend_ask
delete from ask where not exists (select 1 from record where seq = ask.record)
