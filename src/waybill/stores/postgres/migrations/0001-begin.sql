-- Records in PostgreSQL: the tables of one store, as they are after all migrations. functions.sql beside it holds the verbs that write.
--
--   record        one row for each thing in motion                     document   its named pieces of JSON, as bytes
--   history       one line for each commit that had an event           ask        what was asked of a record that a worker held
--   session       one row for each worker that lives                   key        who holds which name; a row is a held key
--   mark          marks in force                                       counter    the last seq: creation order over the whole store
--   tally         how many in each state, with tally_delta to be       turn       the highest turn handed out, kind by kind
--                 added and folded in by sweep                         memory     what remember() keeps
--
-- Everything is in one schema ("waybill" unless the store was opened with another), so that it can be given rights, dumped and dropped as
-- one. Text is compared by bytes (collate "C"): the order is then the same on every machine, and a comparison costs a third. Times are
-- seconds since 1970 by waybill_now(), the database's clock.
--
-- Locks are taken in this order by every verb, so that no two wait for each other:
--   1. the session's row       2. rows of record: waiting, in the order of (kind, id), or not waiting (skip locked)
--   3. keys to be taken, in the order of their names      4. keys to be handed on, then those to be dropped, in the order of their names
--   5. without waiting: keys and marks that a record is parked on (for share), waiters of a key      6. the counter

create table record (
    kind        text collate "C" not null,
    id          text collate "C" not null,
    seq         bigint           not null,
    state       text collate "C" not null,
    version     bigint           not null,
    parent_kind text collate "C",
    parent_id   text collate "C",
    owner       text collate "C" not null,
    priority    integer          not null,
    turn        bigint           not null,
    last_done   text collate "C",
    retries     integer          not null,
    tries       integer          not null,
    message     text collate "C" not null,
    session     text collate "C",
    keys        text[]           not null,
    gates       text[]           not null,
    parked      text collate "C",
    open        boolean          not null,
    host        text collate "C" not null,
    request     text collate "C",
    nudges      bigint           not null,
    wake_at     double precision not null,
    created     double precision not null,
    updated     double precision not null,
    primary key (id, kind),
    constraint priority_is_within_0_and_99 check (priority between 0 and 99),
    constraint a_parent_has_a_kind_and_an_id check ((parent_kind is null) = (parent_id is null)),
    constraint what_is_held_is_not_parked check (session is null or parked is null),
    constraint only_what_waits_wakes check (wake_at = 0 or parked = 'wait')
) with (
    fillfactor = 70,  -- room for the next versions of a row beside it
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,  -- by count: a fifth of a million is too late for the queue's index
    autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);

-- A statement must leave the planner no choice: what it takes for cheap on an empty table, or in a state that all records are in, may cost a
-- walk over the whole of it. So the primary key alone begins with id, and each index for pages is only for statements that repeat its own
-- condition, which is always true (and of columns that never change, or no update could stay within its page).
--
-- Only what can be claimed now is in the two indexes of the queue: rows at its head that may not be taken would be looked at by every claim.
create index record_urgent on record (state, kind, host, priority, turn, seq) where session is null and parked is null;
create index record_oldest on record (state, kind, host, seq) where session is null and parked is null;
create index record_held on record (session) where session is not null;
-- Waits by when they are due; waiters of a key (whose wake_at is 0) by urgency; what a mark stopped.
create index record_parked on record (parked, wake_at, priority, turn, seq) where parked is not null;
-- One for each filter of find, in creation order.
create index record_of_kind on record (kind, seq) where seq > 0;
create index record_in_state on record (state, kind, seq) where created >= 0;
create index record_of_owner on record (owner, kind, seq) where owner <> '';
create index record_of_parent on record (parent_id, parent_kind, kind, seq) where id <> '' and parent_id is not null;
create index record_open_child on record (parent_id, parent_kind) where open and parent_id is not null;
create unique index record_request on record (request, kind) where request is not null;

create table document (
    kind text collate "C" not null,
    id   text collate "C" not null,
    name text collate "C" not null,
    body bytea            not null,  -- never json or jsonb: those refuse or rewrite what other stores keep
    primary key (kind, id, name)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

create table history (
    kind    text collate "C" not null,
    id      text collate "C" not null,
    version bigint           not null,
    at      double precision not null,
    who     text collate "C" not null,
    event   text collate "C" not null,
    before  text collate "C",
    after   text collate "C",
    why     text collate "C" not null,
    primary key (kind, id, version)
);

create table ask (
    kind   text collate "C" not null,
    id     text collate "C" not null,
    action text collate "C" not null,
    who    text collate "C" not null,
    why    text collate "C" not null,
    args   bytea            not null,
    primary key (kind, id)
);

create table session (
    name     text collate "C" primary key,
    host     text collate "C" not null,
    since    double precision not null,
    ttl      double precision not null,
    expires  double precision not null,
    about    bytea            not null,
    progress bytea            not null
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

create table key (
    name text collate "C" primary key,
    kind text collate "C" not null,
    id   text collate "C" not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index key_of_record on key (kind, id);

create table mark (
    name text collate "C" primary key,
    who  text collate "C" not null,
    why  text collate "C" not null
);

-- One row, updated by every commit that creates: always in one page, cleaned in passing.
create table counter (
    one  boolean primary key default true check (one),
    last bigint  not null
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into counter (last) values (0);

-- A parent of '' stands for all records of the kind. Counter rows in the commit would make all writers wait for each other.
create table tally (
    kind        text collate "C" not null,
    parent_kind text collate "C" not null,
    parent_id   text collate "C" not null,
    state       text collate "C" not null,
    n           bigint           not null,
    primary key (kind, parent_kind, parent_id, state)
) with (fillfactor = 50);
create index tally_empty on tally (n) where n = 0;
create table tally_delta (
    kind        text collate "C" not null,
    parent_kind text collate "C" not null,
    parent_id   text collate "C" not null,
    state       text collate "C" not null,
    n           bigint           not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
create index tally_delta_of on tally_delta (kind, parent_kind, parent_id);

create table turn (
    kind text collate "C" primary key,
    turn bigint           not null
) with (fillfactor = 50);

create table memory (
    name  text collate "C" primary key,
    value text collate "C" not null
);

-- Which migrations this schema has had.
create table migration (
    number integer primary key,
    name   text             not null,
    at     double precision not null
);
-- The verbs that take more than one statement: commit_groups, claim_records, end_sessions; and what they share.
--
-- They are functions because each must see, in a later statement, what others committed while an earlier one waited for a lock (a
-- statement's own snapshot is older than the lock it got), and because a worker that is paused between two statements of a transaction
-- would keep everybody out of its rows. So each verb is one call, one round trip and one transaction.
--
-- A function whose arguments or meaning change gets a new name; the old one stays for one release, for workers that still run it.

-- What the driver sends: one row for each change, document, key, parent to call. Rows of unnest(...) have these columns.
create type change_row as (
    n integer, grp integer, op text, kind text, id text, version bigint, holder text, was text, parent_kind text, parent_id text,
    state text, owner text, priority integer, turn bigint, last_done text, retries integer, tries integer, message text, session text,
    keys text[], gates text[], parked text, open boolean, host text, request text, nudges bigint, delay double precision,
    closes boolean, answers boolean, event text, who text, why text);
create type document_row as (n integer, grp integer, kind text, id text, name text, body bytea);
create type key_row as (n integer, grp integer, op text, use text, kind text, id text, name text);
create type nudge_row as (grp integer, kind text, id text);
create type turn_row as (kind text, turn bigint);
create type role_row as (kind text, state text, holds boolean);

-- What it gets: a change as it was written, or why its group was not.
create type answer_row as (
    n integer, grp integer, refusal text, reason text, seq bigint, turn bigint, session text, parked text, nudges bigint,
    wake_at double precision, moment double precision, ask_action text, ask_who text, ask_why text, ask_args bytea);

-- Why a group is not written.
create type refusal_row as (n integer, grp integer, refusal text, reason text);

-- Within a claim: a record that is locked, and what was found about it.
create type queued_row as (
    kind text, id text, seq bigint, priority integer, turn bigint, keys text[], gates text[], holds boolean, mark text, blocker text);

-- The clock of the store. Tests replace it.
create function waybill_now() returns double precision language sql volatile
as $$ select extract(epoch from clock_timestamp())::double precision $$;

-- The id of a new record: as given, or, where it ends in "*", the prefix and the ten digits of its seq.
create function minted(id text, seq bigint) returns text language sql immutable
as $$ select case when id like '%*' then left(id, -1) || lpad(seq::text, greatest(10, length(seq::text)), '0') else id end $$;

-- These keys are free, or were a moment ago: let the first waiter of each that is free try again. A waiter that is locked is passed over:
-- whoever has it locked sees for himself that the key is free (he locks the key for share before he leaves a record parked on it).
create function pass_keys(names text[]) returns bigint language plpgsql volatile
as $$
declare
    passed bigint;
begin
    with first_waiter as materialized (
        select w.kind, w.id
        from (select distinct u.name from unnest(names) as u(name)) n
        cross join lateral (
            select r.kind, r.id from record r
            where r.parked = 'key ' || n.name
            order by r.wake_at, r.priority, r.turn, r.seq
            limit 1 for update skip locked) w
        where not exists (select from key k where k.name = n.name)),
    let_go as (
        update record r set parked = null from first_waiter w where r.id = w.id and r.kind = w.kind returning 1)
    select count(*) into passed from let_go;
    return passed;
end
$$;

-- Write groups of changes, each whole or not at all. The groups of one call have nothing to do with each other (the driver sees to it), so
-- that they can be judged and written together, each table with one statement.
--
--   changes    of records that are there: op "write", "save", "go on" or "remove"; n counts 1, 2, ...
--   creations  of new ones; n counts -1, -2, ...
--   documents  written, or removed where the body is null; `n` of the creation they belong to, or 0
--   key_uses   use "take", "drop" or "pass" (neither taken nor kept: let the next one try)
--   calls      parents to nudge                     turns  the highest turns that this process handed out
--   plain      every group is one change of a record that is there, and none has to do with keys, children or calls, as most of what a
--              worker commits: then the UPDATE itself judges, and no row is locked before it; the changes come in the order of (kind, id)
--
-- The answer has a row for each change that was written, and one for each reason why a group was refused.
create function commit_groups(
    changes change_row[], creations change_row[], documents document_row[], key_uses key_row[], calls nudge_row[], turns turn_row[],
    plain boolean)
returns setof answer_row language plpgsql volatile
as $$
declare
    moment   double precision;
    bad      refusal_row[] := '{}';
    written  answer_row[];
    released nudge_row[];  -- of those the records that were held: n, kind and id
    refused  integer[];  -- the groups left out
    freed    integer[] := '{}';  -- changes that go on without their claim
    missed   integer[];  -- changes that did not get a key
    taken    text[];
    first    bigint;  -- the seq before that of the first record made
    highest  bigint;  -- the highest version of what is removed
begin
    if not plain and cardinality(changes) + cardinality(calls) > 0 then
        perform from record r
        join (select c.kind, c.id from unnest(changes) c union select u.kind, u.id from unnest(calls) u) t on r.id = t.id and r.kind = t.kind
        order by r.kind, r.id for update of r;
    end if;
    moment := waybill_now();

    -- Judge. From here on the rows do not move, and each statement sees all that was committed before they were locked.
    if not plain and cardinality(changes) > 0 then
        bad := array(
            select (c.n, c.grp, case when c.holder is not null and c.holder is distinct from r.session then 'claim-lost' else 'conflict' end,
                    null)::refusal_row
            from unnest(changes) c left join record r on r.id = c.id and r.kind = c.kind
            where r.version is distinct from c.version or r.session is distinct from c.holder);
        if exists (select from unnest(changes) c where c.closes) then
            bad := bad || array(
                select (c.n, c.grp, 'open', null)::refusal_row
                from unnest(changes) c
                where c.closes
                  and (exists (select from record k
                               where k.parent_id = c.id and k.parent_kind = c.kind and k.open
                                 and not exists (select from unnest(changes) g
                                                 where g.grp = c.grp and g.id = k.id and g.kind = k.kind and (g.op = 'remove' or not g.open)))
                       or exists (select from unnest(changes || creations) g
                                  where g.grp = c.grp and g.parent_id = c.id and g.parent_kind = c.kind and g.op <> 'remove' and g.open)));
        end if;
    end if;
    if cardinality(creations) > 0 then
        bad := bad || array(
            select (m.n, m.grp, case when q.id is not null then 'known' else 'exists' end, q.id)::refusal_row
            from unnest(creations) m
            left join record q on q.request = m.request and q.kind = m.kind and q.request is not null
            left join record r on r.id = m.id and r.kind = m.kind
            where q.id is not null or r.id is not null);
    end if;
    if cardinality(key_uses) > 0 then
        bad := bad || array(
            select (k.n, k.grp, 'taken', k.name)::refusal_row
            from unnest(key_uses) k join key t on t.name = k.name
            where k.use = 'take' and k.op = 'save' and (t.id <> k.id or t.kind <> k.kind)
              and not exists (select from unnest(key_uses) d
                              where d.use = 'drop' and d.grp = k.grp and d.name = k.name and d.id = t.id and d.kind = t.kind));
    end if;
    refused := array(select distinct b.grp from unnest(bad) b);
    return query select b.n, b.grp, b.refusal, b.reason, null::bigint, null::bigint, null::text, null::text, null::bigint,
                        null::double precision, moment, null::text, null::text, null::text, null::bytea
                 from unnest(bad) b;

    if exists (select from mark) then
        freed := array(select c.n from unnest(changes) c where c.op = 'go on' and c.gates && array(select m.name from mark m));
    end if;
    if cardinality(key_uses) > 0 then
        with won as (
            insert into key (name, kind, id)
            select k.name, k.kind, k.id from unnest(key_uses) k
            where k.use = 'take' and k.grp <> all (refused) and k.n <> all (freed)
            order by k.name
            on conflict do nothing returning name)
        select coalesce(array_agg(w.name), '{}') into taken from won w;
        -- A key that goes from one record of a group to another: only now that no other is waited for, or one who waits for this key could
        -- have the one that we wait for.
        with handed as (
            update key t set kind = k.kind, id = k.id
            from unnest(key_uses) d join unnest(key_uses) k on d.grp = k.grp and d.name = k.name
            where d.use = 'drop' and k.use = 'take' and k.grp <> all (refused) and k.n <> all (freed)
              and t.name = d.name and t.id = d.id and t.kind = d.kind
            returning t.name)
        select taken || coalesce(array_agg(h.name), '{}') into taken from handed h;
        -- Who has it not is asked, and not who else has it: that one may have dropped it again since.
        missed := array(
            select k.n from unnest(key_uses) k
            where k.use = 'take' and k.grp <> all (refused) and k.n <> all (freed)
              and not exists (select from key t where t.name = k.name and t.id = k.id and t.kind = k.kind));
        if missed <> '{}' then
            if exists (select from unnest(key_uses) k where k.op = 'save' and k.n = any (missed)) then
                -- It was free when the groups were judged. Nothing is written; the driver sends them again.
                raise exception 'a key was taken meanwhile' using errcode = 'WBR01';
            end if;
            freed := freed || missed;
            delete from key t using unnest(key_uses) k
            where k.use = 'take' and k.n = any (freed) and t.name = k.name and t.id = k.id and t.kind = k.kind and t.name = any (taken);
        end if;
        delete from key t using (
            select t.name from unnest(key_uses) k join key t on t.name = k.name and t.id = k.id and t.kind = k.kind
            where k.use = 'drop' and k.grp <> all (refused)
            order by t.name for update of t) d
        where t.name = d.name;
    end if;

    -- Parents are called before the changes are written: one that the same group parks is then left free.
    if cardinality(calls) > 0 then
        update record r set
            nudges = r.nudges + u.times,
            parked = case when r.parked in ('wait', 'children') then null else r.parked end,
            wake_at = 0
        from (select c.kind, c.id, count(*) as times from unnest(calls) c where c.grp <> all (refused) group by c.kind, c.id) u
        where r.id = u.id and r.kind = u.kind;
        -- A commit that drops a key passes over waiters that we have locked; so see for them that the key is still held.
        update record r set parked = null
        from unnest(calls) u
        where r.id = u.id and r.kind = u.kind and r.parked like 'key %'
          and not exists (select from (select from key k where k.name = substr(r.parked, 5) for share skip locked) held);
    end if;

    if cardinality(changes) > 0 then
        with moved as (
            update record r set
                state = c.state, version = r.version + 1, owner = c.owner, priority = c.priority, turn = coalesce(c.turn, r.turn),
                last_done = c.last_done, retries = c.retries, tries = c.tries, message = c.message,
                session = case when c.n <> all (freed) then c.session end,
                keys = c.keys, gates = c.gates, open = c.open, host = c.host, updated = moment,
                parked = case when c.parked in ('wait', 'children') and r.nudges = c.nudges then c.parked end,
                wake_at = case when c.parked = 'wait' and r.nudges = c.nudges then moment + c.delay else 0 end
            from unnest(changes) c
            where r.id = c.id and r.kind = c.kind and r.version = c.version and r.session is not distinct from c.holder
              and c.op <> 'remove' and c.grp <> all (refused)
            returning c.n, c.grp, c.holder, c.answers, r.kind, r.id, r.turn, r.session, r.parked, r.nudges, r.wake_at)
        select coalesce(array_agg((m.n, m.grp, null, null, null, m.turn, m.session, m.parked, m.nudges, m.wake_at, moment,
                                   null, null, null, null)::answer_row), '{}'),
               array_agg((m.n, m.kind, m.id)::nudge_row) filter (where m.holder is not null and m.session is null and not m.answers)
        into written, released
        from moved m;
        -- In a statement of its own, which sees what was asked while the one above waited for the row.
        return query
        select w.n, w.grp, w.refusal, w.reason, w.seq, w.turn, w.session, w.parked, w.nudges, w.wake_at, w.moment, a.action, a.who, a.why, a.args
        from unnest(written) w
        left join (select u.grp as n, a.action, a.who, a.why, a.args
                   from unnest(released) u join ask a on a.kind = u.kind and a.id = u.id) a on a.n = w.n;
        if plain and cardinality(written) < cardinality(changes) then
            bad := array(
                select (c.n, c.grp, case when c.holder is not null and c.holder is distinct from r.session then 'claim-lost' else 'conflict' end,
                        null)::refusal_row
                from unnest(changes) c left join record r on r.id = c.id and r.kind = c.kind
                where c.n not in (select w.n from unnest(written) w));
            refused := array(select b.grp from unnest(bad) b);
            return query select b.n, b.grp, b.refusal, b.reason, null::bigint, null::bigint, null::text, null::text, null::bigint,
                                null::double precision, moment, null::text, null::text, null::text, null::bytea
                         from unnest(bad) b;
        end if;

        insert into history (kind, id, version, at, who, event, before, after, why)
        select c.kind, c.id, c.version + 1, moment, c.who, c.event, c.was, c.state, c.why
        from unnest(changes) c where c.event <> '' and c.op <> 'remove' and c.grp <> all (refused);

        if exists (select from unnest(changes) c where c.answers) then
            delete from ask a using unnest(changes) c where c.answers and c.grp <> all (refused) and a.kind = c.kind and a.id = c.id;
        end if;
        if exists (select from unnest(changes) c where c.op = 'remove') then
            delete from document d using unnest(changes) c
            where c.op = 'remove' and c.grp <> all (refused) and d.kind = c.kind and d.id = c.id;
            delete from history h using unnest(changes) c
            where c.op = 'remove' and c.grp <> all (refused) and h.kind = c.kind and h.id = c.id;
            delete from ask a using unnest(changes) c
            where c.op = 'remove' and c.grp <> all (refused) and a.kind = c.kind and a.id = c.id;
            return query
            with gone as (
                delete from record r using unnest(changes) c
                where c.op = 'remove' and c.grp <> all (refused) and r.id = c.id and r.kind = c.kind
                returning c.n, c.grp)
            select g.n, g.grp, null::text, null::text, null::bigint, null::bigint, null::text, null::text, null::bigint,
                   null::double precision, moment, null::text, null::text, null::text, null::bytea
            from gone g;
            select max(c.version) into highest from unnest(changes) c where c.op = 'remove' and c.grp <> all (refused);
        end if;
    end if;
    if cardinality(key_uses) > 0 then
        perform pass_keys(array(select k.name from unnest(key_uses) k where (k.use <> 'take' or k.n = any (freed)) and k.grp <> all (refused)));
    end if;

    insert into tally_delta (kind, parent_kind, parent_id, state, n)
    select m.kind, p.kind, p.id, s.state, sum(s.n)
    from (select c.kind, c.parent_kind, c.parent_id, c.was, c.state, count(*) as n
          from unnest(changes || creations) c
          where c.was is distinct from c.state and c.grp <> all (refused)
          group by c.kind, c.parent_kind, c.parent_id, c.was, c.state) m  -- hundreds of changes are the same few moves
    cross join lateral (values (m.state, m.n), (m.was, -m.n)) s(state, n)
    cross join lateral (values ('', ''), (m.parent_kind, m.parent_id)) p(kind, id)
    where s.state is not null and p.id is not null
    group by m.kind, p.kind, p.id, s.state
    having sum(s.n) <> 0;

    -- The counter is the last lock: creations are then committed in the order of their seq, and no page misses one that comes late.
    if exists (select from unnest(creations) m where m.grp <> all (refused)) then
        loop
            update counter set last = last + cardinality(creations) returning last - cardinality(creations) into first;
            exit when not exists (  -- an id that a caller chose may look like one of ours
                select from unnest(creations) m join record r on r.id = minted(m.id, first - m.n) and r.kind = m.kind
                where m.id like '%*');
        end loop;
        return query
        with parents as (
            select m.kind, m.parent_kind, m.parent_id,
                   coalesce(greatest((select t.turn from turn t where t.kind = m.kind),
                                     (select t.turn from unnest(turns) t where t.kind = m.kind),
                                     (select k.turn + 1 from record k
                                      where k.parent_id = m.parent_id and k.parent_kind = m.parent_kind and k.kind = m.kind and k.id <> ''
                                      order by k.seq desc limit 1)), 0) as turn
            from (select distinct c.kind, c.parent_kind, c.parent_id from unnest(creations) c where c.parent_id is not null and c.turn is null) m),
        made as (
            insert into record (kind, id, seq, state, version, parent_kind, parent_id, owner, priority, turn, last_done, retries, tries, message,
                                session, keys, gates, parked, open, host, request, nudges, wake_at, created, updated)
            select m.kind, minted(m.id, s.seq), s.seq, m.state, s.seq, m.parent_kind, m.parent_id, m.owner, m.priority,
                   coalesce(m.turn,
                            p.turn - 1 + row_number() over (partition by m.kind, m.parent_kind, m.parent_id, m.turn is null order by m.n desc),
                            s.seq),
                   m.last_done, m.retries, m.tries, m.message, null, m.keys, m.gates,
                   case when m.parked in ('wait', 'children') then m.parked end, m.open, m.host, m.request, 0,
                   case when m.parked = 'wait' then moment + m.delay else 0 end, moment, moment
            from unnest(creations) m
            cross join lateral (select first - m.n as seq) s
            left join parents p on p.kind = m.kind and p.parent_id = m.parent_id and p.parent_kind = m.parent_kind
            where m.grp <> all (refused)
            returning seq, turn, parked, wake_at)
        select (first - m.seq)::integer, null::integer, null::text, null::text, m.seq, m.turn, null::text, m.parked, 0::bigint,
               m.wake_at, moment, null::text, null::text, null::text, null::bytea
        from made m;

        insert into history (kind, id, version, at, who, event, before, after, why)
        select m.kind, minted(m.id, s.seq), s.seq, moment, m.who, m.event, null, m.state, m.why
        from unnest(creations) m cross join lateral (select first - m.n as seq) s
        where m.event <> '' and m.grp <> all (refused);
    end if;
    if highest > (select c.last from counter c) then
        -- A later life of the same id begins above all versions of this one.
        update counter set last = greatest(last, highest);
    end if;

    if cardinality(documents) > 0 then
        insert into document (kind, id, name, body)
        select d.kind, case when d.n < 0 then minted(d.id, first - d.n) else d.id end, d.name, d.body
        from unnest(documents) d where d.body is not null and d.grp <> all (refused)
        on conflict (kind, id, name) do update set body = excluded.body;
        if exists (select from unnest(documents) d where d.body is null) then
            delete from document t using unnest(documents) d
            where d.body is null and d.grp <> all (refused) and t.kind = d.kind and t.id = d.id and t.name = d.name;
        end if;
    end if;
end
$$;

-- Give to a session what can be claimed now: the oldest `aged` and then the most urgent, `wanted` in all. A record that may not be taken is
-- parked in passing, and the claim looks on, at 1,000 records at most. With `only_id` it is that record or none.
--
-- Candidates are found without locks, one limited scan of the index for each role and host, and merged; only then rows are locked, as many
-- as are wanted, and what made them candidates is tested again. Locked inside the scans, one worker would hide all the others' work.
-- The test says coalesce(session, parked) so that the queue's indexes do not answer it: walked through whole, they look cheap on a new table.
--
-- `again` tells that it is worth looking once more: waiters of a key were "let go", or all that could be claimed was "locked" by others.
create function claim_records(
    roles role_row[], claimer text, wanted integer, aged integer, only_kind text, only_id text,
    out again text, out mark text,
    out kind text, out id text, out state text, out parent_kind text, out parent_id text, out owner text, out priority integer,
    out last_done text, out retries integer, out tries integer, out message text, out session text, out keys text[], out gates text[],
    out parked text, out open boolean, out host text, out request text, out turn bigint, out seq bigint, out version bigint,
    out nudges bigint, out wake_at double precision, out created double precision, out updated double precision,
    out doc_names text[], out doc_bodies bytea[], out ask_action text, out ask_who text, out ask_why text, out ask_args bytea)
returns setof record language plpgsql volatile
as $$
#variable_conflict use_column
declare
    hosts         text[];
    marked        text[];
    portion       integer;
    branch        integer;
    looked        integer := 0;
    last_priority integer := -1;  -- how far the queue has been looked through
    last_turn     bigint := 0;
    last_seq      bigint := 0;
    found_rows    queued_row[];
    one           queued_row;
    took          queued_row[] := '{}';
    stopped       queued_row[] := '{}';
    seqs          bigint[] := '{}';
    wish          text;
    holder        key;
    kept          text[];  -- of the record's keys, those that it has already
    new_keys      text[] := '{}';  -- to be taken, and by whom
    new_kinds     text[] := '{}';
    new_ids       text[] := '{}';
    lost          text[] := '{}';
    in_force      text[];
begin
    select array_remove(array['', nullif(s.host, '')], null) into hosts from session s where s.name = claimer for key share;
    if not found then
        raise exception 'the session % is gone', claimer using errcode = 'WBS01';
    end if;
    select coalesce(array_agg(m.name), '{}') into marked from mark m;

    loop
        portion := least(wanted - cardinality(took), 1000 - looked);
        exit when portion <= 0;
        if only_id is not null then
            found_rows := array(
                select (r.kind, r.id, r.seq, r.priority, r.turn, r.keys, r.gates, false, null, null)::queued_row
                from record r
                where r.id = only_id and r.kind = only_kind and r.session is null and r.host = any (hosts)
                  and (r.parked is null or r.parked like 'key %' or r.parked like 'mark %' or (r.parked = 'wait' and r.wake_at <= waybill_now()))
                for update);
        elsif aged > 0 then
            found_rows := array(
                select (r.kind, r.id, r.seq, r.priority, r.turn, r.keys, r.gates, c.holds, null, null)::queued_row
                from (select q.kind, q.id, q.state, q.seq, o.holds
                      from unnest(roles) o cross join unnest(hosts) h(host)
                      cross join lateral (
                          select r.kind, r.id, r.state, r.seq from record r
                          where r.state = o.state and r.kind = o.kind and r.host = h.host and r.session is null and r.parked is null
                          order by r.seq limit 4 * aged) q
                      order by q.seq limit 4 * aged) c
                join record r on r.id = c.id and r.kind = c.kind
                where r.state = c.state and r.host = any (hosts) and coalesce(r.session, r.parked) is null
                order by c.seq limit least(aged, portion) for update of r skip locked);
        else
            branch := greatest(portion, 4 * portion / greatest(cardinality(roles) * cardinality(hosts), 1));
            found_rows := array(
                select (r.kind, r.id, r.seq, r.priority, r.turn, r.keys, r.gates, c.holds, null, null)::queued_row
                from (select q.kind, q.id, q.state, q.priority, q.turn, q.seq, o.holds
                      from unnest(roles) o cross join unnest(hosts) h(host)
                      cross join lateral (
                          select r.kind, r.id, r.state, r.priority, r.turn, r.seq from record r
                          where r.state = o.state and r.kind = o.kind and r.host = h.host and r.session is null and r.parked is null
                            and (r.priority, r.turn, r.seq) > (last_priority, last_turn, last_seq)
                          order by r.priority, r.turn, r.seq limit branch) q
                      order by q.priority, q.turn, q.seq limit 4 * portion) c
                join record r on r.id = c.id and r.kind = c.kind
                where r.state = c.state and r.host = any (hosts) and coalesce(r.session, r.parked) is null and r.seq <> all (seqs)
                order by c.priority, c.turn, c.seq limit portion for update of r skip locked);
        end if;
        looked := looked + cardinality(found_rows);
        seqs := seqs || array(select f.seq from unnest(found_rows) f);

        if marked = '{}' and not exists (select from unnest(found_rows) f where f.keys <> '{}') then
            took := took || found_rows;
        else
            foreach one in array found_rows loop
                foreach wish in array one.gates loop
                    if wish = any (marked) then
                        one.mark := wish;
                        exit;
                    end if;
                end loop;
                kept := '{}';
                if one.mark is null then
                    foreach wish in array one.keys loop
                        select k.* into holder from key k where k.name = wish;
                        if found and holder.kind = one.kind and holder.id = one.id then
                            kept := kept || wish;
                        elsif found or wish = any (new_keys) then
                            one.blocker := wish;
                            exit;
                        end if;
                    end loop;
                end if;
                if one.blocker is not null or (one.mark is not null and not one.holds) then
                    stopped := stopped || one;
                else
                    took := took || one;
                    if one.mark is null then
                        foreach wish in array one.keys loop
                            -- Not looked at a second time: what another has taken since must be among those that are found lost.
                            if wish <> all (kept) and wish <> all (new_keys) then
                                new_keys := new_keys || wish;
                                new_kinds := new_kinds || one.kind;
                                new_ids := new_ids || one.id;
                            end if;
                        end loop;
                    end if;
                end if;
            end loop;
        end if;

        exit when only_id is not null;
        if aged > 0 then
            aged := 0;
        elsif cardinality(found_rows) = portion then
            one := found_rows[portion];
            last_priority := one.priority;
            last_turn := one.turn;
            last_seq := one.seq;
        else
            -- Others have locked the rest of the candidates, or there are no more: then this was the last of them.
            select q.priority, q.turn, q.seq into last_priority, last_turn, last_seq
            from unnest(roles) o cross join unnest(hosts) h(host)
            cross join lateral (
                select r.priority, r.turn, r.seq from record r
                where r.state = o.state and r.kind = o.kind and r.host = h.host and r.session is null and r.parked is null
                  and (r.priority, r.turn, r.seq) > (last_priority, last_turn, last_seq)
                order by r.priority, r.turn, r.seq limit branch) q
            order by q.priority, q.turn, q.seq offset 4 * portion - 1 limit 1;
            exit when not found;
        end if;
    end loop;

    if cardinality(new_keys) > 0 then
        insert into key (name, kind, id)
        select n.name, n.kind, n.id from unnest(new_keys, new_kinds, new_ids) as n(name, kind, id) order by n.name
        on conflict do nothing;
        -- Another took it since we looked, and may have dropped it again: its record stays in the queue, with none of the others.
        lost := array(
            select n.kind || ' ' || n.id from unnest(new_keys, new_kinds, new_ids) as n(name, kind, id)
            where not exists (select from key k where k.name = n.name and k.kind = n.kind and k.id = n.id));
        if lost <> '{}' then
            delete from key k using unnest(new_keys, new_kinds, new_ids) as n(name, kind, id)
            where n.kind || ' ' || n.id = any (lost) and k.name = n.name and k.kind = n.kind and k.id = n.id;
        end if;
    end if;

    if cardinality(stopped) > 0 then
        -- Locked for share and seen again, so that whoever drops the key or clears the mark sees the record parked on it; what is being
        -- dropped right now stays in the queue.
        in_force := array(select 'key ' || k.name from key k where k.name in (select s.blocker from unnest(stopped) s) for share skip locked)
                 || array(select 'mark ' || m.name from mark m where m.name in (select s.mark from unnest(stopped) s) for share skip locked);
        update record r set parked = p.reason, wake_at = 0
        from (select s.kind, s.id, coalesce('mark ' || s.mark, 'key ' || s.blocker) as reason from unnest(stopped) s) p
        where r.id = p.id and r.kind = p.kind and p.reason = any (in_force);
    end if;
    if cardinality(stopped) > 0 or exists (select from unnest(took) t where t.mark is not null) then
        if pass_keys(array(select distinct k from unnest(took || stopped) t cross join unnest(t.keys) k)) > 0 then
            again := 'let go';
            return next;
        end if;
    elsif cardinality(took) = 0 and exists (
            select from unnest(roles) o cross join unnest(hosts) h(host)
            cross join lateral (
                select from record r
                where r.state = o.state and r.kind = o.kind and r.host = h.host and r.session is null and r.parked is null
                order by r.priority, r.turn, r.seq limit 1) q) then
        again := 'locked';
        return next;
    end if;

    return query
    with mine as (
        update record r set session = claimer, version = r.version + 1, parked = null, wake_at = 0
        from unnest(took) t
        where r.id = t.id and r.kind = t.kind and t.kind || ' ' || t.id <> all (lost)
        returning t.mark as mark, r.*)
    select null::text, m.mark, m.kind, m.id, m.state, m.parent_kind, m.parent_id, m.owner, m.priority, m.last_done, m.retries, m.tries, m.message,
           m.session, m.keys, m.gates, m.parked, m.open, m.host, m.request, m.turn, m.seq, m.version, m.nudges, m.wake_at, m.created, m.updated,
           d.names, d.bodies, a.action, a.who, a.why, a.args
    from mine m
    left join lateral (select array_agg(d.name) as names, array_agg(d.body) as bodies from document d where d.kind = m.kind and d.id = m.id) d on true
    left join ask a on a.kind = m.kind and a.id = m.id
    order by m.priority, m.turn, m.seq;
end
$$;

-- End sessions: first their rows go, then, in a statement that sees every claim which was made before, all that they held is free. One
-- statement for both would miss a claim that is committed after its snapshot, and leave it to a session that is gone, for ever.
create function end_sessions(names text[], only_expired boolean) returns setof text language plpgsql volatile
as $$
declare
    ended text[];
begin
    with doomed as materialized (
        select s.name from session s
        where s.name = any (names) and (not only_expired or s.expires <= waybill_now())
        order by s.name for update),
    gone as (
        delete from session s using doomed d where s.name = d.name returning s.name)
    select coalesce(array_agg(name), '{}') into ended from gone;
    update record r set session = null, version = r.version + 1
    from (select h.kind, h.id from record h where h.session = any (ended) order by h.kind, h.id for update) h
    where r.id = h.id and r.kind = h.kind;
    return query select unnest(ended);
end
$$;
