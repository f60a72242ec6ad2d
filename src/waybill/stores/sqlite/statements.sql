-- The statements of the SQLite driver. There is one writer at a time, so no statement locks rows. $columns are COLUMNS of rows.py, in order.

-- name: get
select $columns from record where kind = ?1 and id = ?2

-- name: get_documents
-- ?1: a JSON list of seqs
select record, name, body from document where record in (select value from json_each(?1)) order by record, name

-- name: find
select $columns from record where kind = ?1 and seq > ?2 order by seq limit ?3

-- name: find_by_state
select $columns from record where kind = ?1 and seq > ?2 and state = ?4 order by seq limit ?3

-- name: find_by_owner
select $columns from record where kind = ?1 and seq > ?2 and owner = ?4 and owner <> '' order by seq limit ?3

-- name: find_by_parent
select $columns from record where kind = ?1 and seq > ?2 and parent_kind = ?4 and parent_id = ?5 order by seq limit ?3

-- name: find_seen_of_owner
-- What somebody may see: one owner or scope, with or without a state; the driver merges those of all of them.
select seq from record where kind = ?1 and seq > ?2 and owner = ?4 and owner <> '' and (?5 is null or state = ?5) order by seq limit ?3

-- name: find_seen_of_scope
select seq from record where kind = ?1 and seq > ?2 and scope = ?4 and scope <> '' and (?5 is null or state = ?5) order by seq limit ?3

-- name: find_seen_by_state
-- $seen: the condition on a record that somebody may see it; ?5 and ?6 are JSON lists of owners and scopes.
select $columns from record where kind = ?1 and seq > ?2 and state = ?4 and $seen order by seq limit ?3

-- name: find_seen_by_owner
select $columns from record where kind = ?1 and seq > ?2 and owner = ?4 and owner <> '' and $seen order by seq limit ?3

-- name: find_seen_by_parent
select $columns from record where kind = ?1 and seq > ?2 and parent_kind = ?4 and parent_id = ?7 and $seen order by seq limit ?3

-- name: get_by_seqs
select $columns from record where seq in (select value from json_each(?1)) order by seq

-- name: count_by_state
select state, n from state_count where kind = ?1 and parent_kind = ?2 and parent_id = ?3 order by state

-- name: count_seen_by_state
-- ?2, ?3: JSON lists of owners and of scopes, each scope with the @ of its rows. The two terms have an index each.
select state, sum(n)
  from (select state, n from state_count
         where kind = ?1 and parent_kind in (select value from json_each(?3))
        union all
        select state, n from state_count
         where kind = ?1 and parent_id in (select value from json_each(?2)) and parent_kind >= '@' and parent_kind < 'A'
           and parent_kind not in (select value from json_each(?3)))
 group by state order by state

-- name: get_history
select h.version, h.at, h.who, h.cause, h.before, h.after, h.why
  from record r join history h on h.record = r.seq
 where r.kind = ?1 and r.id = ?2
 order by h.version

-- name: has_open_child
select 1 from record where parent_kind = ?1 and parent_id = ?2 and open = 1 limit 1

-- name: get_state_and_open
select state, open from record where kind = ?1 and id = ?2

-- name: is_idle_parent
-- The parent exists and has no open child.
select 1 from record p
 where p.kind = ?1 and p.id = ?2
   and not exists (select 1 from record c where c.parent_kind = ?1 and c.parent_id = ?2 and c.open = 1)

-- name: find_idle_parents
-- A page of the parents that wait for children, and for each whether it has no open child left. Filtered in SQL, a million parents that do
-- have open children would all be read by one call.
select p.kind, p.id, not exists (select 1 from record c where c.parent_kind = p.kind and c.parent_id = p.id and c.open = 1),
       p.priority, p.seq
  from (select * from (select * from record where blocked_by = 'children' and wake_at = 0 and priority = ?1 and seq > ?2 order by seq limit ?3)
        union all  -- not "(priority, seq) > (?1, ?2)", which the index does not find: seq is its rowid
        select * from (select * from record where blocked_by = 'children' and wake_at = 0 and priority > ?1 order by priority, seq limit ?3)
        limit ?3) p

-- Writing -------------------------------------------------------------------------------------------------------------------------------

-- name: advance_counter
-- A removal raises the counter to the removed version: a later record with the same id never reaches one of those versions again.
update counter set last_seq = max(last_seq, ?2) + ?1 where singleton = 1 returning last_seq

-- name: note_write_time
update counter set newest_write = max(newest_write, ?1) where singleton = 1

-- name: create_record
insert into record (seq, kind, id, state, version, parent_kind, parent_id, owner, scope, priority, queue_position, last_done, resume_count,
                    error_count, message, session, locks, hold_names, blocked_by, open, host, idempotency_key, wake_count, wake_at, created, updated)
values (?1, ?2, ?3, ?4, ?1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, null, ?15, ?16, ?17, ?18, ?19, ?20, 0, ?21, ?22, ?22)
on conflict (kind, id) do nothing

-- name: get_by_idempotency_key
select $columns from record where kind = ?1 and idempotency_key = ?2

-- name: get_last_child_position
-- The newest child has the last position.
select queue_position from record where kind = ?1 and parent_kind = ?2 and parent_id = ?3 order by seq desc limit 1

-- name: get_queue_positions
select highest_position, parentless_position from queue_position where kind = ?1

-- name: raise_queue_position
insert into queue_position values (?1, ?2, 0) on conflict (kind) do update set highest_position = max(highest_position, excluded.highest_position)

-- name: write_parentless_position
insert into queue_position values (?1, 0, ?2) on conflict (kind) do update set parentless_position = excluded.parentless_position

-- name: update_claimed
-- A checkpoint, or a continuation into the next state: the claim stays, so session and blocked_by are not written, and no index of claims is
-- touched. The version implies the state; a `before` with another state is refused here, because the state counts rely on it.
update record
   set version = version + 1, state = ?1, owner = ?2, scope = ?3, priority = ?4, last_done = ?5, resume_count = ?6, error_count = ?7,
       message = ?8, locks = ?9, hold_names = ?10, open = ?11, host = ?12, queue_position = ?13, updated = ?14
 where seq = ?15 and version = ?16 and session = ?17 and state = ?18

-- name: update_released
-- A release, or an action on an unclaimed record.
update record
   set version = version + 1, state = ?1, owner = ?2, scope = ?3, priority = ?4, last_done = ?5, resume_count = ?6, error_count = ?7,
       message = ?8, locks = ?9, hold_names = ?10, open = ?11, host = ?12, queue_position = ?13, updated = ?14, session = null,
       blocked_by = ?19, wake_at = ?20
 where seq = ?15 and version = ?16 and session is ?17 and state = ?18

-- name: get_wake_count
-- Read before update_released and not returned by it: RETURNING costs five times as much, and nobody else writes in between.
select wake_count from record where seq = ?1

-- name: remove_record
delete from record where seq = ?1 and version = ?2 and session is ?3 and state = ?4

-- name: get_version_and_session
select version, session from record where seq = ?1 and kind = ?2 and id = ?3

-- name: wake_record
update record
   set wake_count = wake_count + 1,
       wake_at = case when blocked_by = 'wait' then 0 else wake_at end,
       blocked_by = case when blocked_by in ('wait', 'children') then null else blocked_by end
 where kind = ?1 and id = ?2

-- name: write_document
insert into document values (?1, ?2, ?3) on conflict (record, name) do update set body = excluded.body

-- name: remove_document
delete from document where record = ?1 and name = ?2

-- name: append_history
insert into history values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: add_count
insert into state_count values (?1, ?2, ?3, ?4, ?5) on conflict (kind, parent_kind, parent_id, state) do update set n = n + excluded.n

-- name: subtract_count
-- Not an upsert: the check n >= 0 would be applied to the negative row before the conflict is found.
update state_count set n = n + ?5 where kind = ?1 and parent_kind = ?2 and parent_id = ?3 and state = ?4

-- name: remove_empty_count
delete from state_count where kind = ?1 and parent_kind = ?2 and parent_id = ?3 and state = ?4 and n = 0

-- Locks ---------------------------------------------------------------------------------------------------------------------------------

-- name: get_other_owner
-- One of the other owners: all have the lock in one sort.
select record, sort from record_lock where name = ?1 and record <> ?2 limit 1

-- name: get_own_sort
select sort from record_lock where name = ?1 and record = ?2

-- name: count_other_owners
select count(*) from record_lock where name = ?1 and record <> ?2

-- name: get_lock_limit
select n from record_lock_limit where name = ?1

-- name: set_lock_limit
insert into record_lock_limit values (?1, ?2, ?3) on conflict (name) do update set n = excluded.n, at = excluded.at

-- name: remove_unused_lock_limits
-- Of counted locks that nobody owns or waits for, and whose limit nobody has set for a long time (?1: since then).
delete from record_lock_limit
 where at < ?1 and not exists (select 1 from record_lock k where k.name = record_lock_limit.name)
   and not exists (select 1 from record r where r.blocked_by = 'lock ' || record_lock_limit.name)

-- name: get_lock_owner
select r.kind, r.id from record_lock k join record r on r.seq = k.record where k.name = ?1 order by r.kind, r.id limit ?2

-- name: list_locks
select k.name, k.sort, count(*), (select n from record_lock_limit l where l.name = k.name and k.sort = 'counted')
  from record_lock k where k.name > ?1 group by k.name order by k.name limit ?2

-- name: take_lock
insert into record_lock values (?1, ?2, ?3) on conflict (name, record) do update set sort = excluded.sort

-- name: drop_lock
delete from record_lock where name = ?1 and record = ?2

-- name: list_lock_waiters
-- In their order (?1: 'lock NAME'): by priority, and then first come, first served.
select seq, priority, locks from record where blocked_by = ?1 and wake_at = 0 order by priority, seq limit ?2

-- name: unblock_waiter
update record set blocked_by = null where seq = ?1

-- name: list_awaited_locks
select distinct blocked_by from record where blocked_by >= 'lock ' and blocked_by < 'lock!'

-- Claims --------------------------------------------------------------------------------------------------------------------------------

-- name: find_most_urgent
-- One such scan for each queue and host, merged by the driver: "state in (...)" would sort the whole queue.
select $columns from record indexed by record_by_urgency
 where kind = ?1 and state = ?2 and host = ?3 and session is null and blocked_by is null
 order by priority, queue_position limit ?4

-- name: find_oldest
select $columns from record indexed by record_by_age
 where kind = ?1 and state = ?2 and host = ?3 and session is null and blocked_by is null
 order by seq limit ?4

-- name: claim_record
update record set session = ?1, version = version + 1, blocked_by = null, wake_at = 0 where seq = ?2

-- name: block_record
update record set blocked_by = ?2 where seq = ?1

-- name: unblock_records
-- A page of the records that are blocked for this reason.
update record set blocked_by = null where seq in (select seq from record where blocked_by = ?1 limit ?2)

-- name: release_due_waits
update record set blocked_by = null, wake_at = 0
 where seq in (select seq from record where blocked_by = 'wait' and wake_at <= ?1 order by wake_at limit ?2)

-- name: get_next_due
select wake_at from record where blocked_by = 'wait' order by wake_at limit 1

-- Sessions ------------------------------------------------------------------------------------------------------------------------------

-- name: find_other_host
select host, expires from session where host <> ?1 and expires > ?2 order by expires desc limit 1

-- name: get_newest_write
select newest_write from counter

-- name: open_session
insert into session values (?1, ?2, ?3, ?4, ?4 + ?3, ?5, x'7b7d')

-- name: renew_session
update session set expires = ?2 + ttl where name = ?1

-- name: renew_session_with_progress
update session set expires = ?2 + ttl, progress = ?3 where name = ?1

-- name: get_session_host
select host from session where name = ?1

-- name: list_sessions
select name, host, since, expires, about, progress from session where about <> ?1 order by since, name

-- name: find_expired_sessions
-- Also sessions that were renewed by a clock that has been set back since: live sessions are renewed by the current clock within a ttl.
select name, ttl from session where expires <= ?1 or expires > ?1 + ttl + 1

-- name: release_claims
update record set session = null, version = version + 1 where session = ?1

-- name: end_session
delete from session where name = ?1

-- Action requests -----------------------------------------------------------------------------------------------------------------------

-- name: has_action_requests
select 1 from action_request limit 1

-- name: add_action_request
insert into action_request values (?1, ?2, ?3, ?4, ?5) on conflict (record) do nothing

-- name: get_claimed_seq
select seq from record where kind = ?1 and id = ?2 and session is not null

-- name: get_action_request
select a.action, a.who, a.why, a.args from action_request a where a.record = ?1

-- name: list_session_requests
-- From the few requests to their records, not from the many records of a session: "cross join" fixes that order.
select r.kind, r.id, a.action, a.who, a.why, a.args
  from action_request a cross join record r on r.seq = a.record
 where r.session = ?1
 order by a.record

-- name: list_action_requests
select r.kind, r.id, a.action, a.who, a.why, a.args
  from action_request a cross join record r on r.seq = a.record
 where r.session is null
 order by a.record limit ?1

-- name: remove_action_request
delete from action_request where record = ?1

-- Holds ---------------------------------------------------------------------------------------------------------------------------------

-- name: list_holds
select name, who, why from hold order by name

-- name: set_hold
insert into hold values (?1, ?2, ?3, ?4) on conflict (name) do update set who = excluded.who, why = excluded.why, at = excluded.at

-- name: clear_hold
delete from hold where name = ?1

-- name: list_stale_hold_blocks
-- Holds that block records and are no longer set.
select distinct blocked_by from record
 where blocked_by >= 'hold ' and blocked_by < 'hold!' and not exists (select 1 from hold where name = substr(blocked_by, 6))

-- name: remember
insert into remembered_value values (?1, ?2) on conflict (name) do nothing

-- name: get_remembered_value
select value from remembered_value where name = ?1

-- name: has_hold
select 1 from hold where name = ?1
