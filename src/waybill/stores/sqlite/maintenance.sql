-- $locks_of_r, $name and $sort: the locks that the record r asks for, and of one of them (j) its name and sort; see maintenance.py.
-- The rules of check(): for each, one statement that finds the violations and one or more that repair all of them.

-- name: find_counts
-- Where the stored counts and the records differ: kind, parent, state, stored, actual.
select kind, parent_kind, parent_id, state, coalesce(c.n, 0), coalesce(t.n, 0)
  from (select kind, '' as parent_kind, '' as parent_id, state, count(*) as n from record group by kind, state
        union all
        select kind, parent_kind, parent_id, state, count(*) from record where parent_id is not null group by 1, 2, 3, 4
        union all
        select kind, '@' || scope, owner, state, count(*) from record where owner <> '' or scope <> '' group by 1, 2, 3, 4) t
  full join state_count c using (kind, parent_kind, parent_id, state)
 where c.n is not t.n

-- name: repair_counts_clear
delete from state_count

-- name: repair_counts
insert into state_count
select kind, '', '', state, count(*) from record group by kind, state
union all
select kind, parent_kind, parent_id, state, count(*) from record where parent_id is not null group by 1, 2, 3, 4
union all
select kind, '@' || scope, owner, state, count(*) from record where owner <> '' or scope <> '' group by 1, 2, 3, 4

-- name: find_claims
select r.kind, r.id, r.session from record r where r.session is not null and not exists (select 1 from session s where s.name = r.session)

-- name: repair_claims
update record set session = null, version = version + 1
 where session is not null and not exists (select 1 from session s where s.name = record.session)

-- name: find_locks
-- A lock is owned by a record that asks for it in that sort. Records whose list is damaged are left out: what they ask for is not known.
select k.name, r.kind, r.id from record_lock k join record r on r.seq = k.record
 where (r.locks = '' or json_valid(r.locks))
   and not exists (select 1 from json_each($locks_of_r) j where $name = k.name and $sort = k.sort)

-- name: repair_locks
delete from record_lock
 where exists (select 1 from record r
                where r.seq = record_lock.record and (r.locks = '' or json_valid(r.locks))
                  and not exists (select 1 from json_each($locks_of_r) j where $name = record_lock.name and $sort = record_lock.sort))

-- name: find_mixed_locks
-- Owned exclusively beside others, or in two sorts at once.
select k.name, count(*), min(k.sort), max(k.sort) from record_lock k
 group by k.name having count(*) > 1 and (min(k.sort) <> max(k.sort) or min(k.sort) = 'exclusive')

-- name: find_missing_locks
-- A claimed record owns every lock that it asks for: a claim takes them, and so does a checkpoint. Not one that was claimed on hold.
select r.kind, r.id, j.value
  from record r, json_each($locks_of_r) j
 where r.session is not null and r.hold_names = ''
   and not exists (select 1 from record_lock k where k.name = $name and k.sort = $sort and k.record = r.seq)

-- name: repair_missing_locks
update record set session = null, version = version + 1
 where seq in (select r.seq from record r, json_each($locks_of_r) j
                where r.session is not null and r.hold_names = ''
                  and not exists (select 1 from record_lock k where k.name = $name and k.sort = $sort and k.record = r.seq))

-- name: find_lock_waiters
-- When no record owns a lock, one of those that ask for it must be about to take it: not claimed and not blocked.
select w.kind, w.id, substr(w.blocked_by, 6) from record w
 where w.blocked_by >= 'lock ' and w.blocked_by < 'lock!'
   and not exists (select 1 from record_lock k where k.name = substr(w.blocked_by, 6))
   and not exists (select 1 from record r, json_each($locks_of_r) j
                    where r.locks <> '' and r.session is null and r.blocked_by is null and $name = substr(w.blocked_by, 6))

-- name: repair_lock_waiters
update record set blocked_by = null
 where blocked_by >= 'lock ' and blocked_by < 'lock!' and not exists (select 1 from record_lock k where k.name = substr(record.blocked_by, 6))

-- name: find_hold_waiters
select r.kind, r.id, substr(r.blocked_by, 6) from record r
 where r.blocked_by >= 'hold ' and r.blocked_by < 'hold!' and not exists (select 1 from hold m where m.name = substr(r.blocked_by, 6))

-- name: repair_hold_waiters
update record set blocked_by = null
 where blocked_by >= 'hold ' and blocked_by < 'hold!' and not exists (select 1 from hold m where m.name = substr(record.blocked_by, 6))

-- name: find_name_lists
-- Columns that contain a JSON list of names, or nothing.
select kind, id, name from (select kind, id, 'locks' as name, locks as list from record union all select kind, id, 'hold_names', hold_names from record)
 where list <> ''
   and case when not json_valid(list) then 1
            when json_type(list) <> 'array' then 1
            else exists (select 1 from json_each(list) j where j.type <> 'text') end

-- name: find_document_bodies
select r.kind, r.id, d.name from document d join record r on r.seq = d.record where not json_valid(cast(d.body as text))

-- name: find_counter
select c.last_seq, (select max(seq) from record) from counter c where c.last_seq < (select max(seq) from record)

-- name: repair_counter
update counter set last_seq = (select max(seq) from record) where last_seq < (select max(seq) from record)

-- name: find_clock
select newest_write - ?1 from counter where newest_write > ?1 + 60

-- name: repair_clock
update counter set newest_write = ?1 where newest_write > ?1 + 60

-- name: repair_waits
-- Waits that were set by the wrong clock; a step that runs too early answers Wait again.
update record set wake_at = ?1 where blocked_by = 'wait' and updated > ?1 + 60

-- name: repair_orphan_documents
delete from document where not exists (select 1 from record where seq = document.record)

-- name: repair_orphan_history
delete from history where not exists (select 1 from record where seq = history.record)

-- name: repair_orphan_locks
delete from record_lock where not exists (select 1 from record where seq = record_lock.record)

-- name: repair_orphan_action_requests
delete from action_request where not exists (select 1 from record where seq = action_request.record)
