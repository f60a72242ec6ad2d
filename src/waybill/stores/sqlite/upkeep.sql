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
-- A key is held by a record that asks for it.
select k.name, r.kind, r.id from key k join record r on r.seq = k.record
 where not exists (select 1 from json_each(nullif(r.keys, '')) j where j.value = k.name)

-- name: mend_keys
delete from key
 where not exists (select 1 from record r, json_each(nullif(r.keys, '')) j where r.seq = key.record and j.value = key.name)

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
