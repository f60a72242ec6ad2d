-- The statements of the SQLite driver. There is one writer at a time, so none of them takes locks; $columns are those of rows.py, in order.

-- name: get
select $columns from record where kind = ?1 and id = ?2

-- name: documents_of
-- ?1: a JSON list of seqs
select record, name, body from document where record in (select value from json_each(?1)) order by record, name

-- name: find
select $columns from record where kind = ?1 and seq > ?2 order by seq limit ?3

-- name: find_state
select $columns from record where kind = ?1 and seq > ?2 and state = ?4 order by seq limit ?3

-- name: find_owner
select $columns from record where kind = ?1 and seq > ?2 and owner = ?4 and owner <> '' order by seq limit ?3

-- name: find_parent
select $columns from record where kind = ?1 and seq > ?2 and parent_kind = ?4 and parent_id = ?5 order by seq limit ?3

-- name: tally
select state, n from tally where kind = ?1 and parent_kind = ?2 and parent_id = ?3 order by state

-- name: history
select h.version, h.at, h.who, h.event, h.before, h.after, h.why
  from record r join history h on h.record = r.seq
 where r.kind = ?1 and r.id = ?2
 order by h.version

-- name: has_open_child
select 1 from record where parent_kind = ?1 and parent_id = ?2 and open = 1 limit 1

-- name: is_idle
-- A parent that is there and has no open child.
select 1 from record p
 where p.kind = ?1 and p.id = ?2
   and not exists (select 1 from record c where c.parent_kind = ?1 and c.parent_id = ?2 and c.open = 1)

-- name: idle_parents
-- A portion of those that wait, and of each whether it waits for nothing: at a million that wait for something all would be looked at.
select p.kind, p.id, not exists (select 1 from record c where c.parent_kind = p.kind and c.parent_id = p.id and c.open = 1),
       p.priority, p.turn, p.seq
  from record p
 where p.parked = 'children' and p.wake_at = 0 and (p.priority, p.turn, p.seq) > (?1, ?2, ?3)
 order by p.priority, p.turn, p.seq limit ?4

-- Writing -------------------------------------------------------------------------------------------------------------------------------

-- name: count_up
-- A removal counts up to the version that it removes: no later life of that id comes to one of its versions again.
update counter set seq = max(seq, ?2) + ?1 where one = 1 returning seq

-- name: wrote
update counter set newest = max(newest, ?1) where one = 1

-- name: create
insert into record (seq, kind, id, state, version, parent_kind, parent_id, owner, priority, turn, last_done, retries, tries, message, session,
                    keys, gates, parked, open, host, request, nudges, wake_at, created, updated)
values (?1, ?2, ?3, ?4, ?1, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, null, ?14, ?15, ?16, ?17, ?18, ?19, 0, ?20, ?21, ?21)
on conflict (kind, id) do nothing

-- name: requested
select $columns from record where kind = ?1 and request = ?2

-- name: last_turn
-- The newest child has the last turn.
select turn from record where kind = ?1 and parent_kind = ?2 and parent_id = ?3 order by seq desc limit 1

-- name: current_turn
select at from turn where kind = ?1

-- name: turn_has_come
insert into turn values (?1, ?2) on conflict (kind) do update set at = max(at, excluded.at)

-- name: keep
-- A save, or going on: the claim stays, so neither the session nor the park is written, and no index of claims is touched.
-- The version says which state it is in; a `before` that says otherwise is refused here, for the tally is counted by it.
update record
   set version = version + 1, state = ?1, owner = ?2, priority = ?3, last_done = ?4, retries = ?5, tries = ?6, message = ?7, keys = ?8,
       gates = ?9, open = ?10, host = ?11, turn = ?12, updated = ?13
 where seq = ?14 and version = ?15 and session = ?16 and state = ?17

-- name: let_go
-- A release, or an action.
update record
   set version = version + 1, state = ?1, owner = ?2, priority = ?3, last_done = ?4, retries = ?5, tries = ?6, message = ?7, keys = ?8,
       gates = ?9, open = ?10, host = ?11, turn = ?12, updated = ?13, session = null, parked = ?18, wake_at = ?19
 where seq = ?14 and version = ?15 and session is ?16 and state = ?17

-- name: nudges
-- Read before `let_go` and not returned by it: RETURNING costs five times as much as this, and nobody else writes meanwhile.
select nudges from record where seq = ?1

-- name: remove
delete from record where seq = ?1 and version = ?2 and session is ?3 and state = ?4

-- name: held_by
select version, session from record where seq = ?1 and kind = ?2 and id = ?3

-- name: nudge
update record
   set nudges = nudges + 1,
       wake_at = case when parked = 'wait' then 0 else wake_at end,
       parked = case when parked in ('wait', 'children') then null else parked end
 where kind = ?1 and id = ?2

-- name: write_document
insert into document values (?1, ?2, ?3) on conflict (record, name) do update set body = excluded.body

-- name: remove_document
delete from document where record = ?1 and name = ?2

-- name: note
insert into history values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)

-- name: count
insert into tally values (?1, ?2, ?3, ?4, ?5) on conflict (kind, parent_kind, parent_id, state) do update set n = n + excluded.n

-- name: count_less
-- An insert would be checked before the row that is there is seen, and no count is below 0.
update tally set n = n + ?5 where kind = ?1 and parent_kind = ?2 and parent_id = ?3 and state = ?4

-- name: forget_count
delete from tally where kind = ?1 and parent_kind = ?2 and parent_id = ?3 and state = ?4 and n = 0

-- Keys ----------------------------------------------------------------------------------------------------------------------------------

-- name: holder
select record from key where name = ?1

-- name: holder_name
select r.kind, r.id from key k join record r on r.seq = k.record where k.name = ?1

-- name: held_keys
select k.name, r.kind, r.id from key k join record r on r.seq = k.record where k.name > ?1 order by k.name limit ?2

-- name: take_key
insert into key values (?1, ?2) on conflict (name) do nothing

-- name: drop_key
delete from key where name = ?1 and record = ?2

-- name: pass_turn
-- The first waiter of a key (?1: 'key NAME') that nobody holds any more may try again.
update record set parked = null
 where seq = (select seq from record where parked = ?1 and wake_at = 0 order by priority, turn, seq limit 1)

-- name: waited_keys
select distinct parked from record where parked >= 'key ' and parked < 'key!'

-- Claims --------------------------------------------------------------------------------------------------------------------------------

-- name: urgent
-- One such scan for each role and host, merged by the driver: "state in (...)" would sort the whole queue.
select $columns from record indexed by record_claim
 where kind = ?1 and state = ?2 and host = ?3 and session is null and parked is null
 order by priority, turn limit ?4

-- name: oldest
select $columns from record indexed by record_age
 where kind = ?1 and state = ?2 and host = ?3 and session is null and parked is null
 order by seq limit ?4

-- name: claim
update record set session = ?1, version = version + 1, parked = null, wake_at = 0 where seq = ?2

-- name: park
update record set parked = ?2 where seq = ?1

-- name: unpark
-- A portion of those that are parked for this reason.
update record set parked = null where seq in (select seq from record where parked = ?1 limit ?2)

-- name: due
update record set parked = null, wake_at = 0
 where seq in (select seq from record where parked = 'wait' and wake_at <= ?1 order by wake_at limit ?2)

-- name: next_due
select wake_at from record where parked = 'wait' order by wake_at limit 1

-- name: any_due
select 1 from record where parked = 'wait' and wake_at <= ?1 limit 1

-- Sessions ------------------------------------------------------------------------------------------------------------------------------

-- name: other_host
select host, expires from session where host <> ?1 and expires > ?2 order by expires desc limit 1

-- name: newest
select newest from counter

-- name: open_session
insert into session values (?1, ?2, ?3, ?4, ?4 + ?3, ?5, x'7b7d')

-- name: renew
update session set expires = ?2 + ttl where name = ?1

-- name: renew_with_progress
update session set expires = ?2 + ttl, progress = ?3 where name = ?1

-- name: session_host
select host from session where name = ?1

-- name: sessions
select name, host, since, expires, about, progress from session where about <> ?1 order by since, name

-- name: expired
-- Also what was renewed by a clock that has been set back since: the living are renewed by the clock of today within a ttl.
select name, ttl from session where expires <= ?1 or expires > ?1 + ttl + 1

-- name: free
update record set session = null, version = version + 1 where session = ?1

-- name: end_session
delete from session where name = ?1

-- Asks ----------------------------------------------------------------------------------------------------------------------------------

-- name: any_asks
select 1 from ask limit 1

-- name: ask
insert into ask values (?1, ?2, ?3, ?4, ?5) on conflict (record) do nothing

-- name: asked
select a.action, a.who, a.why, a.args from ask a where a.record = ?1

-- name: asked_of
-- From the few asks to their records, not from the many records of a session: "cross join" keeps that order.
select r.kind, r.id, a.action, a.who, a.why, a.args
  from ask a cross join record r on r.seq = a.record
 where r.session = ?1
 order by a.record

-- name: asks
select r.kind, r.id, a.action, a.who, a.why, a.args
  from ask a cross join record r on r.seq = a.record
 where r.session is null
 order by a.record limit ?1

-- name: answer
delete from ask where record = ?1

-- Marks ---------------------------------------------------------------------------------------------------------------------------------

-- name: marks
select name, who, why from mark order by name

-- name: mark_on
insert into mark values (?1, ?2, ?3, ?4) on conflict (name) do update set who = excluded.who, why = excluded.why, at = excluded.at

-- name: mark_off
delete from mark where name = ?1

-- name: stale_marks
-- Reasons to be parked that hold no longer.
select distinct parked from record where parked >= 'mark ' and parked < 'mark!' and not exists (select 1 from mark where name = substr(parked, 6))

-- name: remember
insert into kept values (?1, ?2) on conflict (name) do nothing

-- name: kept
select value from kept where name = ?1

-- name: is_marked
select 1 from mark where name = ?1
