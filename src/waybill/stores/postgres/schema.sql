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
