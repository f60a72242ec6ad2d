-- What takes more than one statement: commit_groups, claim_records and end_sessions, and what they share.
--
-- These are functions because a later statement must see what others committed while an earlier one waited for a row lock (the snapshot of a
-- statement is older than the lock it waited for), and because a worker that is paused between two statements of a transaction would keep its
-- rows locked. So each is one call, one round trip and one transaction.
--
-- A function whose arguments or meaning change gets a new name; the old one stays for one release, for workers that still call it.

-- What the driver sends: one row for each change, document, lock use and wake. Rows of unnest(...) have these columns.
create type change_row as (
    n integer, group_number integer, operation text, kind text, id text, version bigint, session_before text, state_before text,
    owner_before text, scope_before text, parent_kind text, parent_id text, state text, owner text, scope text, priority integer, queue_position bigint, last_done text, resume_count integer,
    error_count integer, message text, session text, locks text[], hold_names text[], blocked_by text, open boolean, host text,
    idempotency_key text, wake_count bigint, delay double precision, requires_children_settled boolean, answers_request boolean, cause text,
    who text, why text);
create type document_row as (n integer, group_number integer, kind text, id text, name text, body bytea);
create type lock_row as (
    n integer, group_number integer, operation text, lock_use text, kind text, id text, name text, sort text, lock_limit integer, priority integer,
    seq bigint);
create type wake_row as (group_number integer, kind text, id text);
create type requirement_row as (
    n integer, group_number integer, requirement text, kind text, id text, action text, who text, why text, args bytea);
create type queue_position_row as (kind text, highest_position bigint);
create type queue_row as (kind text, state text, claims_on_hold boolean, kind_turn integer, application text, application_turn integer);

-- What commit_groups returns: a change as it was written, or why its group was refused.
create type answer_row as (
    n integer, group_number integer, refusal text, reason text, seq bigint, queue_position bigint, session text, blocked_by text,
    wake_count bigint, wake_at double precision, commit_time double precision,
    request_action text, request_who text, request_why text, request_args bytea);

-- Why a group is refused.
create type refusal_row as (n integer, group_number integer, refusal text, reason text);

-- Within a claim: a candidate whose row is locked, and what blocks it.
create type queued_row as (
    kind text, id text, seq bigint, priority integer, queue_position bigint, locks text[], hold_names text[], claims_on_hold boolean, hold text,
    blocking_lock text);

-- The clock of the store. Tests replace it.
create function waybill_now() returns double precision language sql volatile
as $$ select extract(epoch from clock_timestamp())::double precision $$;

-- The id of a new record: as given, or, where it ends in "*", the prefix and the ten digits of its seq.
create function mint_id(id text, seq bigint) returns text language sql immutable
as $$ select case when id like '%*' then left(id, -1) || lpad(seq::text, greatest(10, length(seq::text)), '0') else id end $$;

-- How a record asks for a lock, as waybill.record.locks writes it: the lock's name, its sort, and of a counted lock how many may own it.
create function lock_name_of(lock text) returns text language sql immutable
as $$ select coalesce(substring(lock from '^(?:shared|at most [1-9][0-9]{0,8} of) ([^ /]+/.*)$'), lock) $$;

create function lock_sort_of(lock text) returns text language sql immutable
as $$ select case when lock ~ '^shared [^ /]+/' then 'shared' when lock ~ '^at most [1-9][0-9]{0,8} of [^ /]+/' then 'counted' else 'exclusive' end $$;

create function lock_limit_of(lock text) returns integer language sql immutable
as $$ select coalesce(substring(lock from '^at most ([1-9][0-9]{0,8}) of [^ /]+/')::integer, 0) $$;

-- Whether a record can own a lock beside its present owners, and before those who wait for it.
--
-- With `locking` the waiter that goes first is locked for share, without waiting: a transaction that takes it out of the way then
-- sees what this one does.
create function can_own_lock(
    lock_name text, lock_sort text, lock_limit integer, own_kind text, own_id text, own_priority integer, own_seq bigint, locking boolean)
returns boolean language plpgsql volatile
as $$
declare
    present     record_lock;
    other_count bigint;
    waiter      record;
begin
    select k.* into present from record_lock k where k.name = lock_name;
    if present.sort = 'exclusive' then
        if present.kind <> own_kind or present.id <> own_id then
            return false;
        elsif lock_sort = 'exclusive' then
            return true;
        end if;
    elsif present.sort is not null then
        if present.sort = lock_sort and exists (
                select from record_lock_share s where s.name = lock_name and s.kind = own_kind and s.id = own_id) then
            return true;  -- it owns it, even if the limit has become lower
        end if;
        if present.sort = 'counted' and lock_sort = 'counted' then
            select count(*) into other_count from record_lock_share s where s.name = lock_name and (s.kind, s.id) <> (own_kind, own_id);
            if other_count >= coalesce((select l.n from record_lock_limit l where l.name = lock_name), lock_limit) then
                return false;
            end if;
        elsif present.sort <> lock_sort and exists (
                select from record_lock_share s where s.name = lock_name and (s.kind, s.id) <> (own_kind, own_id)) then
            return false;
        end if;
    end if;
    if lock_sort = 'exclusive' then
        return true;
    end if;
    select r.kind, r.id, r.priority, r.seq, r.locks into waiter
    from record r where r.blocked_by = 'lock ' || lock_name
    order by r.wake_at, r.priority, r.seq limit 1;
    if not found or (waiter.priority, waiter.seq) >= (own_priority, own_seq)
       or not exists (select from unnest(waiter.locks) w where lock_name_of(w) = lock_name and lock_sort_of(w) <> lock_sort) then
        return true;
    end if;
    if locking then
        perform from record r where r.id = waiter.id and r.kind = waiter.kind and r.blocked_by = 'lock ' || lock_name for share skip locked;
        return not found;
    end if;
    return false;
end
$$;

-- Make a record the owner of a lock that it can own (can_own_lock), whose gate or row this transaction has locked or inserted.
create function own_lock(lock_name text, lock_sort text, own_kind text, own_id text) returns void language plpgsql volatile
as $$
begin
    if lock_sort = 'exclusive' then  -- it was the only one that shared it
        delete from record_lock_share s where s.name = lock_name;
        update record_lock k set sort = 'exclusive', kind = own_kind, id = own_id where k.name = lock_name;
    else
        update record_lock k set sort = lock_sort, kind = null, id = null where k.name = lock_name and k.sort <> lock_sort;
        insert into record_lock_share (name, kind, id) values (lock_name, own_kind, own_id) on conflict do nothing;
    end if;
end
$$;

-- Delete the gates among these locks that have no owner left. Locked first, and then counted: another owner may just have come.
create function remove_empty_gates(names text[]) returns void language plpgsql volatile
as $$
begin
    if names <> '{}' then
        perform from record_lock k where k.name = any (names) and k.sort <> 'exclusive' order by k.name for update;
        delete from record_lock k
        where k.name = any (names) and k.sort <> 'exclusive' and not exists (select from record_lock_share s where s.name = k.name);
    end if;
end
$$;

-- Unblock the first waiters of each of these record locks who can own it now, and return how many. A waiter whose row is locked is skipped: the
-- transaction that has it locked finds out itself that the record lock is free (it locks the record lock for share before it leaves a record
-- blocked by it).
create function unblock_lock_waiters(names text[]) returns bigint language plpgsql volatile
as $$
declare
    unblocked_count bigint := 0;
    lock_name       text;
    owner_sort      text;
    owner_count     bigint;
    most            integer;
    most_waiters    integer;
    waiter          record;
    chosen_kinds    text[];
    chosen_ids      text[];
begin
    for lock_name in
        select distinct u.name from unnest(names) as u(name)
        where exists (select from record r where r.blocked_by = 'lock ' || u.name)
        order by 1
    loop
        select k.sort, case when k.sort = 'exclusive' then 1 else (select count(*) from record_lock_share s where s.name = k.name) end
        into owner_sort, owner_count from record_lock k where k.name = lock_name;
        continue when owner_sort = 'exclusive';
        most := (select l.n from record_lock_limit l where l.name = lock_name);
        owner_count := coalesce(owner_count, 0);
        -- Of those who want it exclusively one can have it: no more rows are locked than are looked at.
        most_waiters := (
            select case when exists (select from unnest(r.locks) l where lock_name_of(l) = lock_name and lock_sort_of(l) <> 'exclusive')
                   then 100 else 1 end
            from record r where r.blocked_by = 'lock ' || lock_name order by r.wake_at, r.priority, r.seq limit 1);
        chosen_kinds := '{}';
        chosen_ids := '{}';
        for waiter in
            select r.kind, r.id, coalesce(w.sort, 'exclusive') as sort, w.lock_limit
            from record r
            left join lateral (
                select lock_sort_of(l) as sort, lock_limit_of(l) as lock_limit from unnest(r.locks) l
                where lock_name_of(l) = lock_name limit 1) w on true
            where r.blocked_by = 'lock ' || lock_name
            order by r.wake_at, r.priority, r.seq
            limit most_waiters for update of r skip locked
        loop
            exit when owner_count > 0 and not (
                waiter.sort = owner_sort
                and (waiter.sort = 'shared' or (waiter.sort = 'counted' and owner_count < coalesce(most, waiter.lock_limit))));
            chosen_kinds := chosen_kinds || waiter.kind;
            chosen_ids := chosen_ids || waiter.id;
            owner_sort := waiter.sort;
            owner_count := owner_count + 1;
        end loop;
        update record r set blocked_by = null from unnest(chosen_kinds, chosen_ids) w(kind, id) where r.id = w.id and r.kind = w.kind;
        unblocked_count := unblocked_count + cardinality(chosen_ids);
    end loop;
    return unblocked_count;
end
$$;

-- Write groups of changes, each whole or not at all. The groups of one call do not depend on each other (the driver sees to it), so that they
-- are validated and written together, each table with one statement.
--
--   changes          of existing records: operation "write", "save", "continue" or "remove"; n counts 1, 2, ...
--   creations        of new records; n counts -1, -2, ...
--   documents        written, or removed where the body is null; n of the creation they belong to, or 0
--   lock_uses        lock_use "take", "drop" (in this sort), "offer" (kept without a claim, and perhaps not owned: then the next waiter may
--                    try), or "limit" (of a counted lock that is asked for anew)
--   wakes            records to wake
--   requirements     "claimed": the record must be claimed, and gets the action request; "open": the parent of creation n must be open
--   queue_positions  the highest queue positions that this process has claimed
--   is_plain         every group is one change of an existing record, without locks, children or wakes, like most of what a worker commits:
--                    then the UPDATE itself validates, and no row is locked before it; the changes come in the order of (kind, id)
--
-- The answer has a row for each change that was written, and one for each reason why a group was refused.
create function commit_groups(
    changes change_row[], creations change_row[], documents document_row[], lock_uses lock_row[], wakes wake_row[],
    requirements requirement_row[], queue_positions queue_position_row[], is_plain boolean)
returns setof answer_row language plpgsql volatile
as $$
declare
    commit_time             double precision;
    refusals                refusal_row[] := '{}';
    written_rows            answer_row[];
    released_records        wake_row[];  -- of the written rows, those that ended a claim: n, kind and id
    refused_groups          integer[];
    unclaimed_changes       integer[] := '{}';  -- changes that continue without their claim
    changes_without_lock    integer[];  -- changes that did not get a lock
    taken_locks             text[];
    lock_use                lock_row;
    gates                   text[] := '{}';  -- of the locks that are shared or counted now, or are to be
    offered_locks           text[];
    new_limits              text[] := '{}';  -- counted locks whose limit changes
    seq_before_first        bigint;  -- the seq before that of the first new record
    highest_removed_version bigint;
begin
    if not is_plain and cardinality(changes) + cardinality(wakes) + cardinality(requirements) > 0 then
        perform from record r
        join (select c.kind, c.id from unnest(changes) c union select u.kind, u.id from unnest(wakes) u
              union select q.kind, q.id from unnest(requirements) q) t on r.id = t.id and r.kind = t.kind
        order by r.kind, r.id for update of r;
    end if;
    commit_time := waybill_now();

    -- Validate. From here on the rows do not change, and each statement sees all that was committed before they were locked.
    if not is_plain and cardinality(changes) > 0 then
        refusals := array(
            select (c.n, c.group_number, 
                    case when c.session_before is not null and c.session_before is distinct from r.session then 'claim-lost' else 'conflict' end,
                    null)::refusal_row
            from unnest(changes) c left join record r on r.id = c.id and r.kind = c.kind
            where r.version is distinct from c.version or r.session is distinct from c.session_before);
        if exists (select from unnest(changes) c where c.requires_children_settled) then
            refusals := refusals || array(
                select (c.n, c.group_number, 'open', null)::refusal_row
                from unnest(changes) c
                where c.requires_children_settled
                  and (exists (select from record k
                               where k.parent_id = c.id and k.parent_kind = c.kind and k.open
                                 and not exists (select from unnest(changes) g
                                                 where g.group_number = c.group_number and g.id = k.id and g.kind = k.kind
                                                   and (g.operation = 'remove' or not g.open)))
                       or exists (select from unnest(changes || creations) g
                                  where g.group_number = c.group_number and g.parent_id = c.id and g.parent_kind = c.kind
                                    and g.operation <> 'remove' and g.open)));
        end if;
    end if;
    if cardinality(creations) > 0 then
        refusals := refusals || array(
            select (m.n, m.group_number, case when q.id is not null then 'known' else 'exists' end, q.id)::refusal_row
            from unnest(creations) m
            left join record q on q.idempotency_key = m.idempotency_key and q.kind = m.kind and q.idempotency_key is not null
            left join record r on r.id = m.id and r.kind = m.kind
            where q.id is not null or r.id is not null);
    end if;
    if cardinality(requirements) > 0 then
        refusals := refusals || array(
            select (0, q.group_number, 'unclaimed', q.kind || ' ' || q.id)::refusal_row
            from unnest(requirements) q left join record r on r.id = q.id and r.kind = q.kind
            where q.requirement = 'claimed' and r.session is null);
        refusals := refusals || array(
            select (0, q.group_number, 'request-pending', a.action || ' was requested of ' || a.kind || ' ' || a.id)::refusal_row
            from unnest(requirements) q join action_request a on a.kind = q.kind and a.id = q.id
            where q.requirement = 'claimed' and (a.action <> q.action or a.args <> q.args or a.who <> q.who));
        refusals := refusals || array(
            select (q.n, q.group_number, 'parent-closed', coalesce(r.state, 'gone'))::refusal_row
            from unnest(requirements) q left join record r on r.id = q.id and r.kind = q.kind
            where q.requirement = 'open'
              and not coalesce((select g.operation <> 'remove' and g.open from unnest(changes || creations) g
                                where g.group_number = q.group_number and g.id = q.id and g.kind = q.kind limit 1), r.open, false));
    end if;
    if cardinality(lock_uses) > 0 then
        refusals := refusals || array(
            select (k.n, k.group_number, 'lock-unavailable', k.name)::refusal_row
            from unnest(lock_uses) k left join record_lock t on t.name = k.name
            where k.lock_use = 'take' and k.operation = 'save'
              and case when k.sort = 'exclusive' and t.name is null then false
                       when k.sort = 'exclusive' and t.sort = 'exclusive' then
                           (t.id <> k.id or t.kind <> k.kind)
                           and not exists (select from unnest(lock_uses) d
                                           where d.lock_use = 'drop' and d.group_number = k.group_number and d.name = k.name
                                             and d.id = t.id and d.kind = t.kind)
                       else not can_own_lock(k.name, k.sort, k.lock_limit, k.kind, k.id, k.priority, k.seq, false) end);
    end if;
    refused_groups := array(select distinct b.group_number from unnest(refusals) b);
    return query select b.n, b.group_number, b.refusal, b.reason, null::bigint, null::bigint, null::text, null::text, null::bigint,
                        null::double precision, commit_time, null::text, null::text, null::text, null::bytea
                 from unnest(refusals) b;

    if exists (select from hold) then
        unclaimed_changes := array(
            select c.n from unnest(changes) c where c.operation = 'continue' and c.hold_names && array(select m.name from hold m));
    end if;
    if cardinality(lock_uses) > 0 then
        with inserted_locks as (
            insert into record_lock (name, kind, id, sort)
            select k.name, case when k.sort = 'exclusive' then k.kind end, case when k.sort = 'exclusive' then k.id end, k.sort
            from unnest(lock_uses) k
            where k.lock_use = 'take' and k.group_number <> all (refused_groups) and k.n <> all (unclaimed_changes)
            order by k.name
            on conflict do nothing returning name)
        select coalesce(array_agg(w.name), '{}') into taken_locks from inserted_locks w;
        gates := array(
            select t.name from record_lock t
            where t.sort <> 'exclusive'
              and t.name in (select k.name from unnest(lock_uses) k where k.lock_use in ('take', 'drop') and k.group_number <> all (refused_groups))
            order by t.name for update);
        -- A lock that goes from one record of a group to another: only now, when no other lock is waited for, or a transaction that waits for
        -- this lock could have the one that we wait for.
        with transferred_locks as (
            update record_lock t set kind = k.kind, id = k.id
            from unnest(lock_uses) d join unnest(lock_uses) k on d.group_number = k.group_number and d.name = k.name
            where d.lock_use = 'drop' and k.lock_use = 'take' and k.group_number <> all (refused_groups) and k.n <> all (unclaimed_changes)
              and d.sort = 'exclusive' and k.sort = 'exclusive'
              and t.name = d.name and t.id = d.id and t.kind = d.kind
            returning t.name)
        select taken_locks || coalesce(array_agg(h.name), '{}') into taken_locks from transferred_locks h;
        -- One after the other, so that each is counted before the next.
        for lock_use in
            select k.* from unnest(lock_uses) k
            where k.lock_use = 'take' and k.group_number <> all (refused_groups) and k.n <> all (unclaimed_changes)
              and (k.sort <> 'exclusive' or k.name = any (gates))
              and not exists (select from record_lock_owner t where t.name = k.name and t.id = k.id and t.kind = k.kind and t.sort = k.sort)
            order by k.n, k.name
        loop
            if exists (select from record_lock t where t.name = lock_use.name and (t.name = any (gates) or t.sort = 'exclusive'))
               and can_own_lock(lock_use.name, lock_use.sort, lock_use.lock_limit, lock_use.kind, lock_use.id, lock_use.priority, lock_use.seq,
                                false) then
                perform own_lock(lock_use.name, lock_use.sort, lock_use.kind, lock_use.id);
                taken_locks := taken_locks || lock_use.name;
            end if;
        end loop;
        -- Look for the locks that are not ours, and not for other owners: those may have dropped them again since.
        changes_without_lock := array(
            select k.n from unnest(lock_uses) k
            where k.lock_use = 'take' and k.group_number <> all (refused_groups) and k.n <> all (unclaimed_changes)
              and not exists (select from record_lock_owner t where t.name = k.name and t.id = k.id and t.kind = k.kind and t.sort = k.sort));
        if changes_without_lock <> '{}' then
            if exists (select from unnest(lock_uses) k where k.operation = 'save' and k.n = any (changes_without_lock)) then
                -- It was free when the groups were validated. Nothing is written; the driver sends them again.
                raise exception 'a lock was taken meanwhile' using errcode = 'WBR01';
            end if;
            unclaimed_changes := unclaimed_changes || changes_without_lock;
            delete from record_lock t using unnest(lock_uses) k
            where k.lock_use = 'take' and k.n = any (unclaimed_changes) and t.name = k.name and t.id = k.id and t.kind = k.kind
              and t.name = any (taken_locks);
            delete from record_lock_share t using unnest(lock_uses) k
            where k.lock_use = 'take' and k.n = any (unclaimed_changes) and t.name = k.name and t.id = k.id and t.kind = k.kind
              and t.name = any (taken_locks);
        end if;
        delete from record_lock t using (
            select t.name from unnest(lock_uses) k join record_lock t on t.name = k.name and t.id = k.id and t.kind = k.kind
            where k.lock_use = 'drop' and k.sort = 'exclusive' and t.sort = 'exclusive' and k.group_number <> all (refused_groups)
            order by t.name for update of t) d
        where t.name = d.name;
        if exists (select from record_lock t where t.name = any (gates || taken_locks) and t.sort <> 'exclusive') then
            delete from record_lock_share t using unnest(lock_uses) k, record_lock g
            where k.lock_use = 'drop' and k.group_number <> all (refused_groups) and t.name = k.name and t.id = k.id and t.kind = k.kind
              and g.name = k.name and g.sort = k.sort;
            perform remove_empty_gates(gates || taken_locks);
        end if;
    end if;

    if cardinality(requirements) > 0 then
        insert into action_request (kind, id, action, who, why, args)
        select q.kind, q.id, q.action, q.who, q.why, q.args from unnest(requirements) q
        where q.requirement = 'claimed' and q.group_number <> all (refused_groups)
        on conflict do nothing;  -- the same request, left before
    end if;

    -- Records are woken before the changes are written: a record that the same group blocks is then left unblocked.
    if cardinality(wakes) > 0 then
        update record r set
            wake_count = r.wake_count + u.times,
            blocked_by = case when r.blocked_by in ('wait', 'children') then null else r.blocked_by end,
            wake_at = 0
        from (select c.kind, c.id, count(*) as times
              from unnest(wakes) c where c.group_number <> all (refused_groups) group by c.kind, c.id) u
        where r.id = u.id and r.kind = u.kind;
        -- A commit that drops a lock skips waiters whose rows we have locked; so check for them that the lock is still owned.
        update record r set blocked_by = null
        from unnest(wakes) u
        where r.id = u.id and r.kind = u.kind and r.blocked_by like 'lock %'
          and not exists (select from (select from record_lock k where k.name = substr(r.blocked_by, 6) for share skip locked) owned);
    end if;

    if cardinality(changes) > 0 then
        with changed_records as (
            update record r set
                state = c.state, version = r.version + 1, owner = c.owner, scope = c.scope, priority = c.priority,
                queue_position = coalesce(c.queue_position, r.queue_position), last_done = c.last_done,
                resume_count = c.resume_count, error_count = c.error_count, message = c.message,
                session = case when c.n <> all (unclaimed_changes) then c.session end,
                locks = c.locks, hold_names = c.hold_names, open = c.open, host = c.host, updated = commit_time,
                blocked_by = case when c.blocked_by in ('wait', 'children') and r.wake_count = c.wake_count then c.blocked_by end,
                wake_at = case when c.blocked_by = 'wait' and r.wake_count = c.wake_count then commit_time + c.delay else 0 end
            from unnest(changes) c
            where r.id = c.id and r.kind = c.kind and r.version = c.version and r.session is not distinct from c.session_before
              and c.operation <> 'remove' and c.group_number <> all (refused_groups)
            returning c.n, c.group_number, c.session_before, c.answers_request, r.kind, r.id, r.queue_position, r.session, r.blocked_by,
                      r.wake_count, r.wake_at)
        select coalesce(array_agg((m.n, m.group_number, null, null, null, m.queue_position, m.session, m.blocked_by, m.wake_count,
                                   m.wake_at, commit_time, null, null, null, null)::answer_row), '{}'),
               array_agg((m.n, m.kind, m.id)::wake_row)
                   filter (where m.session_before is not null and m.session is null and not m.answers_request)
        into written_rows, released_records
        from changed_records m;
        -- In a statement of its own, which sees what was requested while the one above waited for the row.
        return query
        select w.n, w.group_number, w.refusal, w.reason, w.seq, w.queue_position, w.session, w.blocked_by, w.wake_count, w.wake_at, w.commit_time,
               a.action, a.who, a.why, a.args
        from unnest(written_rows) w
        left join (select u.group_number as n, a.action, a.who, a.why, a.args
                   from unnest(released_records) u join action_request a on a.kind = u.kind and a.id = u.id) a on a.n = w.n;
        if is_plain and cardinality(written_rows) < cardinality(changes) then
            refusals := array(
                select (c.n, c.group_number, 
                        case when c.session_before is not null and c.session_before is distinct from r.session then 'claim-lost' else 'conflict' end,
                        null)::refusal_row
                from unnest(changes) c left join record r on r.id = c.id and r.kind = c.kind
                where c.n not in (select w.n from unnest(written_rows) w));
            refused_groups := array(select b.group_number from unnest(refusals) b);
            return query select b.n, b.group_number, b.refusal, b.reason, null::bigint, null::bigint, null::text, null::text, null::bigint,
                                null::double precision, commit_time, null::text, null::text, null::text, null::bytea
                         from unnest(refusals) b;
        end if;

        insert into history (kind, id, version, at, who, cause, before, after, why)
        select c.kind, c.id, c.version + 1, commit_time, c.who, c.cause, c.state_before, c.state, c.why
        from unnest(changes) c where c.cause <> '' and c.operation <> 'remove' and c.group_number <> all (refused_groups);

        if exists (select from unnest(changes) c where c.answers_request) then
            delete from action_request a using unnest(changes) c
            where c.answers_request and c.group_number <> all (refused_groups) and a.kind = c.kind and a.id = c.id;
        end if;
        if exists (select from unnest(changes) c where c.operation = 'remove') then
            delete from document d using unnest(changes) c
            where c.operation = 'remove' and c.group_number <> all (refused_groups) and d.kind = c.kind and d.id = c.id;
            delete from history h using unnest(changes) c
            where c.operation = 'remove' and c.group_number <> all (refused_groups) and h.kind = c.kind and h.id = c.id;
            delete from action_request a using unnest(changes) c
            where c.operation = 'remove' and c.group_number <> all (refused_groups) and a.kind = c.kind and a.id = c.id;
            return query
            with removed as (
                delete from record r using unnest(changes) c
                where c.operation = 'remove' and c.group_number <> all (refused_groups) and r.id = c.id and r.kind = c.kind
                returning c.n, c.group_number)
            select g.n, g.group_number, null::text, null::text, null::bigint, null::bigint, null::text, null::text, null::bigint,
                   null::double precision, commit_time, null::text, null::text, null::text, null::bytea
            from removed g;
            select max(c.version) into highest_removed_version
            from unnest(changes) c where c.operation = 'remove' and c.group_number <> all (refused_groups);
        end if;
    end if;
    if cardinality(lock_uses) > 0 then
        if exists (select from unnest(lock_uses) k where k.lock_use = 'limit') then
            -- The latest commit says how many may own a counted lock. Written only where it changes: many ask for one lock.
            with wanted as (
                select distinct on (k.name) k.name, k.lock_limit from unnest(lock_uses) k
                where k.lock_use = 'limit' and k.group_number <> all (refused_groups)
                order by k.name, k.group_number desc, abs(k.n) desc),
            written as (
                insert into record_lock_limit as l (name, n, at)
                select w.name, w.lock_limit, commit_time from wanted w
                where not exists (select from record_lock_limit p where p.name = w.name and p.n = w.lock_limit)
                order by w.name
                on conflict (name) do update set n = excluded.n, at = excluded.at
                returning l.name)
            select coalesce(array_agg(w.name), '{}') into new_limits from written w;
        end if;
        offered_locks := array(
            select k.name from unnest(lock_uses) k
            where (k.lock_use in ('drop', 'offer') or (k.lock_use = 'take' and k.n = any (unclaimed_changes)))
              and k.group_number <> all (refused_groups));
        perform unblock_lock_waiters(offered_locks || new_limits);
    end if;

    insert into state_count_delta (kind, parent_kind, parent_id, state, n)
    select m.kind, p.kind, p.id, s.state, sum(s.n)
    from (select c.kind, c.parent_kind, c.parent_id, c.state_before, c.state, c.owner_before, c.owner, c.scope_before, c.scope, count(*) as n
          from unnest(changes || creations) c
          where (c.state_before is distinct from c.state or c.owner_before <> c.owner or c.scope_before <> c.scope)
            and c.group_number <> all (refused_groups)
          group by 1, 2, 3, 4, 5, 6, 7, 8, 9) m  -- hundreds of changes are the same few moves
    cross join lateral (values (m.state, m.n, m.scope, m.owner), (m.state_before, -m.n, m.scope_before, m.owner_before)) s(state, n, scope, owner)
    cross join lateral (values ('', ''), (m.parent_kind, m.parent_id),
                               ('@' || s.scope, case when s.scope <> '' or s.owner <> '' then s.owner end)) p(kind, id)
    where s.state is not null and p.id is not null
    group by m.kind, p.kind, p.id, s.state
    having sum(s.n) <> 0;

    -- The counter is locked last: records are then committed in the order of their seq, and no page misses one that is committed late.
    if exists (select from unnest(creations) m where m.group_number <> all (refused_groups)) then
        loop
            update counter set last_seq = last_seq + cardinality(creations)
            returning last_seq - cardinality(creations) into seq_before_first;
            exit when not exists (  -- an id that a caller chose may look like a minted one
                select from unnest(creations) m join record r on r.id = mint_id(m.id, seq_before_first - m.n) and r.kind = m.kind
                where m.id like '%*');
        end loop;
        return query
        -- The children of a parent are one family, the records of a kind that have no parent another: families take turns, each starting
        -- from the highest position that was claimed.
        with family_positions as (
            select m.kind, m.parent_kind, m.parent_id,
                   coalesce(greatest((select t.highest_position from queue_position t where t.kind = m.kind),
                                     (select t.highest_position from unnest(queue_positions) t where t.kind = m.kind),
                                     (select t.last_position + 1 from parentless_position t where t.kind = m.kind and m.parent_id is null),
                                     (select k.queue_position + 1 from record k
                                      where k.parent_id = m.parent_id and k.parent_kind = m.parent_kind and k.kind = m.kind and k.id <> ''
                                      order by k.seq desc limit 1)), 0) as queue_position,
                   m.n
            from (select c.kind, c.parent_kind, c.parent_id, count(*) as n from unnest(creations) c
                  where c.queue_position is null and c.group_number <> all (refused_groups) group by 1, 2, 3) m),
        parentless_positions as (  -- written under the lock of the counter, so by one transaction at a time
            insert into parentless_position as t (kind, last_position)
            select p.kind, p.queue_position + p.n - 1 from family_positions p where p.parent_id is null
            on conflict (kind) do update set last_position = excluded.last_position),
        created_records as (
            insert into record (kind, id, seq, state, version, parent_kind, parent_id, owner, scope, priority, queue_position, last_done, resume_count,
                                error_count, message, session, locks, hold_names, blocked_by, open, host, idempotency_key, wake_count, wake_at,
                                created, updated)
            select m.kind, mint_id(m.id, s.seq), s.seq, m.state, s.seq, m.parent_kind, m.parent_id, m.owner, m.scope, m.priority,
                   coalesce(m.queue_position,
                            p.queue_position - 1
                            + row_number() over (partition by m.kind, m.parent_kind, m.parent_id, m.queue_position is null order by m.n desc)),
                   m.last_done, m.resume_count, m.error_count, m.message, null, m.locks, m.hold_names,
                   case when m.blocked_by in ('wait', 'children') then m.blocked_by end, m.open, m.host, m.idempotency_key, 0,
                   case when m.blocked_by = 'wait' then commit_time + m.delay else 0 end, commit_time, commit_time
            from unnest(creations) m
            cross join lateral (select seq_before_first - m.n as seq) s
            left join family_positions p on p.kind = m.kind and coalesce(p.parent_id, '') = coalesce(m.parent_id, '')
                                        and coalesce(p.parent_kind, '') = coalesce(m.parent_kind, '')
            where m.group_number <> all (refused_groups)
            returning seq, queue_position, blocked_by, wake_at)
        select (seq_before_first - m.seq)::integer, null::integer, null::text, null::text, m.seq, m.queue_position, null::text, m.blocked_by,
               0::bigint, m.wake_at, commit_time, null::text, null::text, null::text, null::bytea
        from created_records m;

        insert into history (kind, id, version, at, who, cause, before, after, why)
        select m.kind, mint_id(m.id, s.seq), s.seq, commit_time, m.who, m.cause, null, m.state, m.why
        from unnest(creations) m cross join lateral (select seq_before_first - m.n as seq) s
        where m.cause <> '' and m.group_number <> all (refused_groups);
    end if;
    if highest_removed_version > (select c.last_seq from counter c) then
        -- A later record with the same id begins above all versions of this one.
        update counter set last_seq = greatest(last_seq, highest_removed_version);
    end if;

    if cardinality(documents) > 0 then
        insert into document (kind, id, name, body)
        select d.kind, case when d.n < 0 then mint_id(d.id, seq_before_first - d.n) else d.id end, d.name, d.body
        from unnest(documents) d where d.body is not null and d.group_number <> all (refused_groups)
        on conflict (kind, id, name) do update set body = excluded.body;
        if exists (select from unnest(documents) d where d.body is null) then
            delete from document t using unnest(documents) d
            where d.body is null and d.group_number <> all (refused_groups) and t.kind = d.kind and t.id = d.id and t.name = d.name;
        end if;
    end if;
end
$$;

-- The heads of these queues on these hosts, after the entry up to which each queue has been scanned, in the order of claims.
create function list_queued(
    queues queue_row[], hosts text[], last_priorities integer[], last_positions bigint[], last_seqs bigint[], scan_limit integer)
returns table (kind text, id text, state text, priority integer, queue_position bigint, seq bigint, claims_on_hold boolean, queue_number bigint,
               place bigint)
language sql stable rows 100
as $$
    with entry as (
        select o.n, o.kind_turn, o.application, o.application_turn, o.claims_on_hold, q.*,
               row_number() over (partition by q.priority, o.kind order by q.queue_position, q.seq) as place_in_kind
        from unnest(queues) with ordinality o(kind, state, claims_on_hold, kind_turn, application, application_turn, n)
        cross join unnest(hosts) h(host)
        cross join lateral (
            select r.kind, r.id, r.state, r.priority, r.queue_position, r.seq from record r
            where r.state = o.state and r.kind = o.kind and r.host = h.host and r.session is null and r.blocked_by is null
              and (r.priority, r.queue_position, r.seq) > (last_priorities[o.n], last_positions[o.n], last_seqs[o.n])
            order by r.priority, r.queue_position, r.seq limit scan_limit) q),
    entry_of_application as (
        select e.*, row_number() over (partition by e.priority, e.application order by e.place_in_kind, e.kind_turn) as place_in_application
        from entry e)
    select e.kind, e.id, e.state, e.priority, e.queue_position, e.seq, e.claims_on_hold, e.n,
           row_number() over (order by e.priority, e.place_in_application, e.application_turn)
    from entry_of_application e
    order by 9
$$;

-- Claim for a session what can be claimed now: the `oldest_count` oldest and then the most urgent, `wanted` in all. A candidate that may not be
-- claimed is blocked in passing, and the claim continues with the next, through 1,000 records at most. With `only_id` it is that record or none.
--
-- Candidates are found without row locks, by one limited scan of the index for each queue and host, and merged so that applications and kinds
-- take turns: the first record of each kind comes before the second of any. Only then rows are locked, as
-- many as are wanted, and what made them candidates is tested again. Locked inside the scans, one worker would hide the others' work. The test
-- says coalesce(session, blocked_by) so that the planner cannot use the indexes of the queue for it: scanned whole, they look cheap on a new table.
--
-- `retry_reason` says that another call is worthwhile: waiters of a lock were "unblocked", or all candidates were "locked" by others.
create function claim_records(
    queues queue_row[], session_name text, wanted integer, oldest_count integer, only_kind text, only_id text,
    out retry_reason text, out hold text,
    out kind text, out id text, out state text, out parent_kind text, out parent_id text, out owner text, out scope text, out priority integer,
    out last_done text, out resume_count integer, out error_count integer, out message text, out session text, out locks text[],
    out hold_names text[], out blocked_by text, out open boolean, out host text, out idempotency_key text, out queue_position bigint, out seq bigint,
    out version bigint,
    out wake_count bigint, out wake_at double precision, out created double precision, out updated double precision,
    out document_names text[], out document_bodies bytea[], out request_action text, out request_who text, out request_why text,
    out request_args bytea)
returns setof record language plpgsql volatile
as $$
#variable_conflict use_column
declare
    hosts               text[];
    set_holds           text[];
    page_size           integer;
    scan_limit          integer;
    scanned_count       integer := 0;
    last_priorities     integer[] := array_fill(-1, array[cardinality(queues)]);  -- how far each queue has been scanned
    last_positions      bigint[] := array_fill(0::bigint, array[cardinality(queues)]);
    last_seqs           bigint[] := array_fill(0::bigint, array[cardinality(queues)]);
    last_entry          record;
    is_last             boolean;
    candidates          queued_row[];
    candidate           queued_row;
    claimable           queued_row[] := '{}';
    blocked             queued_row[] := '{}';
    seen_seqs           bigint[] := '{}';
    wanted_name         text;
    wanted_lock         text;  -- how a candidate asks for the lock `wanted_name`, in which sort
    wanted_sort         text;
    lock_owner          record_lock;
    owned_locks         text[];  -- of the candidate's locks, those that it owns already
    new_locks           text[] := '{}';  -- to be taken, in which sort, and by which record
    new_lock_sorts      text[] := '{}';
    new_lock_limits     integer[] := '{}';
    new_lock_kinds      text[] := '{}';
    new_lock_ids        text[] := '{}';
    new_lock_priorities integer[] := '{}';
    new_lock_seqs       bigint[] := '{}';
    gates               text[] := '{}';  -- of the locks to be taken that are shared or counted
    new_lock            record;
    lost_records        text[] := '{}';  -- records that did not get all of their locks
    in_force            text[];
begin
    select array_remove(array['', nullif(s.host, '')], null) into hosts from session s where s.name = session_name for key share;
    if not found then
        raise exception 'the session % is gone', session_name using errcode = 'WBS01';
    end if;
    select coalesce(array_agg(m.name), '{}') into set_holds from hold m;

    loop
        page_size := least(wanted - cardinality(claimable), 1000 - scanned_count);
        exit when page_size <= 0;
        if only_id is not null then
            candidates := array(
                select (r.kind, r.id, r.seq, r.priority, r.queue_position, r.locks, r.hold_names, false, null, null)::queued_row
                from record r
                where r.id = only_id and r.kind = only_kind and r.session is null and r.host = any (hosts)
                  and (r.blocked_by is null or r.blocked_by like 'lock %' or r.blocked_by like 'hold %'
                       or (r.blocked_by = 'wait' and r.wake_at <= waybill_now()))
                for update);
        elsif oldest_count > 0 then
            candidates := array(
                select (r.kind, r.id, r.seq, r.priority, r.queue_position, r.locks, r.hold_names, c.claims_on_hold, null, null)::queued_row
                from (select q.kind, q.id, q.state, q.seq, o.claims_on_hold
                      from unnest(queues) o cross join unnest(hosts) h(host)
                      cross join lateral (
                          select r.kind, r.id, r.state, r.seq from record r
                          where r.state = o.state and r.kind = o.kind and r.host = h.host and r.session is null and r.blocked_by is null
                          order by r.seq limit 4 * oldest_count) q
                      order by q.seq limit 4 * oldest_count) c
                join record r on r.id = c.id and r.kind = c.kind
                where r.state = c.state and r.host = any (hosts) and coalesce(r.session, r.blocked_by) is null
                order by c.seq limit least(oldest_count, page_size) for update of r skip locked);
        else
            scan_limit := greatest(page_size, 4 * page_size / greatest(cardinality(queues) * cardinality(hosts), 1));
            candidates := array(
                select (r.kind, r.id, r.seq, r.priority, r.queue_position, r.locks, r.hold_names, c.claims_on_hold, null, null)::queued_row
                from (select * from list_queued(queues, hosts, last_priorities, last_positions, last_seqs, scan_limit) limit 4 * page_size) c
                join record r on r.id = c.id and r.kind = c.kind
                where r.state = c.state and r.host = any (hosts) and coalesce(r.session, r.blocked_by) is null and r.seq <> all (seen_seqs)
                order by c.place limit page_size for update of r skip locked);
        end if;
        scanned_count := scanned_count + cardinality(candidates);
        seen_seqs := seen_seqs || array(select f.seq from unnest(candidates) f);

        if set_holds = '{}' and not exists (select from unnest(candidates) f where f.locks <> '{}') then
            claimable := claimable || candidates;
        else
            foreach candidate in array candidates loop
                foreach wanted_name in array candidate.hold_names loop
                    if wanted_name = any (set_holds) then
                        candidate.hold := wanted_name;
                        exit;
                    end if;
                end loop;
                owned_locks := '{}';
                if candidate.hold is null then
                    foreach wanted_lock in array candidate.locks loop
                        wanted_name := lock_name_of(wanted_lock);
                        wanted_sort := lock_sort_of(wanted_lock);
                        select k.* into lock_owner from record_lock k where k.name = wanted_name;
                        if found and lock_owner.kind = candidate.kind and lock_owner.id = candidate.id and wanted_sort = 'exclusive' then
                            owned_locks := owned_locks || wanted_name;
                        elsif wanted_sort = 'exclusive' then
                            if found or wanted_name = any (new_locks) then
                                candidate.blocking_lock := wanted_name;
                                exit;
                            end if;
                        elsif exists (select from record_lock_share s
                                      where s.name = wanted_name and s.kind = candidate.kind and s.id = candidate.id) then
                            owned_locks := owned_locks || wanted_name;
                        elsif not can_own_lock(wanted_name, wanted_sort, lock_limit_of(wanted_lock), candidate.kind, candidate.id,
                                               candidate.priority, candidate.seq, false)
                              or exists (select from unnest(new_locks, new_lock_sorts) as n(name, sort)
                                         where n.name = wanted_name and n.sort <> wanted_sort)
                              or (wanted_sort = 'counted' and wanted_name = any (new_locks)
                                  and (select count(*) from record_lock_share s where s.name = wanted_name)
                                      + cardinality(array_positions(new_locks, wanted_name))
                                      >= coalesce((select l.n from record_lock_limit l where l.name = wanted_name), lock_limit_of(wanted_lock))) then
                            candidate.blocking_lock := wanted_name;
                            exit;
                        end if;
                    end loop;
                end if;
                if candidate.blocking_lock is not null or (candidate.hold is not null and not candidate.claims_on_hold) then
                    blocked := blocked || candidate;
                else
                    claimable := claimable || candidate;
                    if candidate.hold is null then
                        foreach wanted_lock in array candidate.locks loop
                            -- Not looked up a second time: what another has taken since must be among the lost.
                            wanted_name := lock_name_of(wanted_lock);
                            wanted_sort := lock_sort_of(wanted_lock);
                            if wanted_name <> all (owned_locks) and (wanted_name <> all (new_locks) or wanted_sort <> 'exclusive') then
                                new_locks := new_locks || wanted_name;
                                new_lock_sorts := new_lock_sorts || wanted_sort;
                                new_lock_limits := new_lock_limits || lock_limit_of(wanted_lock);
                                new_lock_priorities := new_lock_priorities || candidate.priority;
                                new_lock_seqs := new_lock_seqs || candidate.seq;
                                new_lock_kinds := new_lock_kinds || candidate.kind;
                                new_lock_ids := new_lock_ids || candidate.id;
                            end if;
                        end loop;
                    end if;
                end if;
            end loop;
        end if;

        exit when only_id is not null;
        if oldest_count > 0 then
            oldest_count := 0;
        else
            -- Continue in each queue after the last entry that was looked at: entries that others have locked are passed over.
            exit when cardinality(claimable) >= wanted;
            is_last := true;
            for last_entry in
                select distinct on (q.queue_number) q.queue_number, q.priority, q.queue_position, q.seq
                from (select * from list_queued(queues, hosts, last_priorities, last_positions, last_seqs, scan_limit) limit 4 * page_size) q
                where cardinality(candidates) < page_size or q.place <= (
                    select max(f.place) from list_queued(queues, hosts, last_priorities, last_positions, last_seqs, scan_limit) f
                    where f.seq = candidates[page_size].seq)
                order by q.queue_number, q.place desc
            loop
                is_last := false;
                last_priorities[last_entry.queue_number] := last_entry.priority;
                last_positions[last_entry.queue_number] := last_entry.queue_position;
                last_seqs[last_entry.queue_number] := last_entry.seq;
            end loop;
            exit when is_last;
        end if;
    end loop;

    if cardinality(new_locks) > 0 then
        insert into record_lock (name, kind, id, sort)
        select n.name, case when n.sort = 'exclusive' then n.kind end, case when n.sort = 'exclusive' then n.id end, n.sort
        from unnest(new_locks, new_lock_sorts, new_lock_kinds, new_lock_ids) as n(name, sort, kind, id) order by n.name
        on conflict do nothing;
        if exists (select from unnest(new_lock_sorts) n(sort) where n.sort <> 'exclusive') then
            gates := array(
                select t.name from record_lock t where t.name = any (new_locks) and t.sort <> 'exclusive' order by t.name for update);
            for new_lock in
                select n.* from unnest(new_locks, new_lock_sorts, new_lock_limits, new_lock_kinds, new_lock_ids, new_lock_priorities, new_lock_seqs)
                    as n(name, sort, lock_limit, kind, id, priority, seq)
                where n.sort <> 'exclusive' and n.name = any (gates)
                order by n.priority, n.seq, n.name
            loop
                if can_own_lock(new_lock.name, new_lock.sort, new_lock.lock_limit, new_lock.kind, new_lock.id, new_lock.priority, new_lock.seq,
                                false) then
                    perform own_lock(new_lock.name, new_lock.sort, new_lock.kind, new_lock.id);
                end if;
            end loop;
        end if;
        -- Another took it since we looked, and may have dropped it again: the record stays in the queue, with none of its other locks.
        lost_records := array(
            select n.kind || ' ' || n.id from unnest(new_locks, new_lock_sorts, new_lock_kinds, new_lock_ids) as n(name, sort, kind, id)
            where not exists (select from record_lock_owner k where k.name = n.name and k.sort = n.sort and k.kind = n.kind and k.id = n.id));
        if lost_records <> '{}' then
            delete from record_lock k using unnest(new_locks, new_lock_kinds, new_lock_ids) as n(name, kind, id)
            where n.kind || ' ' || n.id = any (lost_records) and k.name = n.name and k.kind = n.kind and k.id = n.id;
            delete from record_lock_share k using unnest(new_locks, new_lock_kinds, new_lock_ids) as n(name, kind, id)
            where n.kind || ' ' || n.id = any (lost_records) and k.name = n.name and k.kind = n.kind and k.id = n.id;
        end if;
        perform remove_empty_gates(gates);
    end if;

    if cardinality(blocked) > 0 then
        -- Locked for share and read again, so that a transaction that drops the lock or clears the hold sees the record blocked by it; a
        -- record whose lock or hold is being removed right now stays in the queue.
        in_force := array(select 'lock ' || k.name from record_lock k
                          where k.name in (select s.blocking_lock from unnest(blocked) s) for share skip locked)
                 || array(select 'hold ' || m.name from hold m
                          where m.name in (select s.hold from unnest(blocked) s) for share skip locked);
        -- A shared or counted lock that is owned need not be in the way any more: its owners are counted again, now that they cannot change.
        if exists (select from record_lock k where 'lock ' || k.name = any (in_force) and k.sort <> 'exclusive') then
            blocked := array(
                select s from unnest(blocked) s
                where s.blocking_lock is null or s.hold is not null
                   or not ('lock ' || s.blocking_lock = any (in_force))
                   or exists (select from unnest(s.locks) l
                              where lock_name_of(l) = s.blocking_lock
                                and not can_own_lock(s.blocking_lock, lock_sort_of(l), lock_limit_of(l), s.kind, s.id, s.priority, s.seq, true)));
        end if;
        update record r set blocked_by = p.reason, wake_at = 0
        from (select s.kind, s.id, coalesce('hold ' || s.hold, 'lock ' || s.blocking_lock) as reason from unnest(blocked) s) p
        where r.id = p.id and r.kind = p.kind and p.reason = any (in_force);
    end if;
    if cardinality(blocked) > 0 or exists (select from unnest(claimable) t where t.hold is not null) then
        if unblock_lock_waiters(array(select distinct lock_name_of(k) from unnest(claimable || blocked) t cross join unnest(t.locks) k)) > 0 then
            retry_reason := 'unblocked';
            return next;
        end if;
    elsif cardinality(claimable) = 0 and exists (
            select from unnest(queues) o cross join unnest(hosts) h(host)
            cross join lateral (
                select from record r
                where r.state = o.state and r.kind = o.kind and r.host = h.host and r.session is null and r.blocked_by is null
                order by r.priority, r.queue_position, r.seq limit 1) q) then
        retry_reason := 'locked';
        return next;
    end if;

    return query
    with claimed as (
        update record r set session = session_name, version = r.version + 1, blocked_by = null, wake_at = 0
        from unnest(claimable) t
        where r.id = t.id and r.kind = t.kind and t.kind || ' ' || t.id <> all (lost_records)
        returning t.hold as hold, r.*)
    select null::text, m.hold, m.kind, m.id, m.state, m.parent_kind, m.parent_id, m.owner, m.scope, m.priority, m.last_done, m.resume_count,
           m.error_count, m.message, m.session, m.locks, m.hold_names, m.blocked_by, m.open, m.host, m.idempotency_key, m.queue_position, m.seq,
           m.version, m.wake_count, m.wake_at, m.created, m.updated,
           d.names, d.bodies, a.action, a.who, a.why, a.args
    from claimed m
    left join lateral (select array_agg(d.name) as names, array_agg(d.body) as bodies from document d where d.kind = m.kind and d.id = m.id) d on true
    left join action_request a on a.kind = m.kind and a.id = m.id
    order by m.priority, m.queue_position, m.seq;
end
$$;

-- End sessions: first their rows are deleted, then their claims are released, in a statement that sees every claim made before. One statement
-- for both would miss a claim that is committed after its snapshot, and leave it to a session that is gone, for ever.
create function end_sessions(names text[], only_expired boolean) returns setof text language plpgsql volatile
as $$
declare
    ended text[];
begin
    with ending as materialized (
        select s.name from session s
        where s.name = any (names) and (not only_expired or s.expires <= waybill_now())
        order by s.name for update),
    removed as (
        delete from session s using ending d where s.name = d.name returning s.name)
    select coalesce(array_agg(name), '{}') into ended from removed;
    update record r set session = null, version = r.version + 1
    from (select h.kind, h.id from record h where h.session = any (ended) order by h.kind, h.id for update) h
    where r.id = h.id and r.kind = h.kind;
    return query select unnest(ended);
end
$$;
