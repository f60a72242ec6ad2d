-- The tables of a store in PostgreSQL. functions.sql beside it has the functions that write them in more than one statement.
--
--   record             one row per record
--   document           the named JSON documents of a record, as bytes
--   history            one row per commit of a record that has a cause
--   action_request     the action that was requested of a record while it was claimed
--   session            the sessions of live workers; a claimed record refers to one
--   record_lock        the locks that are owned: an exclusive one with its owner, a shared or counted one as the gate to its owners
--   record_lock_share  the owners of shared and counted locks
--   record_lock_limit  how many records may own a counted lock, as the commit said that asked for it last
--   hold               the holds that are set
--   counter            the last seq: the creation order over the whole store
--   state_count        how many records are in each state; state_count_delta is to be added, and maintain_indexes folds it in
--   queue_position     the highest queue position that was claimed, for each kind
--   parentless_position  the last queue position that was given to a record without a parent, for each kind
--   remembered_value   what remember() keeps
--
-- Everything is in one schema ("waybill" unless the store was opened with another), so that it can be granted, dumped and dropped as a whole.
-- Text is compared by bytes (collate "C"): the order is then the same on every machine, and a comparison costs a third. Times are seconds
-- since 1970 by waybill_now(), the database's clock.
--
-- Every function and statement locks rows in this order, so that no two wait for each other:
--   1. the session's row
--   2. rows of record: waiting, in the order of (kind, id), or not waiting (skip locked)
--   3. record locks to be taken, in the order of their names; then all gates of shared and counted locks that are taken or dropped, in the order
--      of their names: whoever changes the owners of such a lock has its gate locked, so that nobody counts them meanwhile
--   4. record locks that go to another record of the same group, then those to be dropped, in the order of their names
--   5. without waiting: record locks and holds that a record is blocked by (for share), waiters of a record lock
--   6. the limits of counted locks, in the order of their names
--   7. the counter

create table record (
    kind            text collate "C" not null,
    id              text collate "C" not null,
    seq             bigint           not null,
    state           text collate "C" not null,
    version         bigint           not null,
    parent_kind     text collate "C",
    parent_id       text collate "C",
    owner           text collate "C" not null,
    scope           text collate "C" not null,
    priority        integer          not null,
    queue_position  bigint           not null,
    last_done       text collate "C",
    resume_count    integer          not null,
    error_count     integer          not null,
    message         text collate "C" not null,
    session         text collate "C",
    locks           text[]           not null,
    hold_names      text[]           not null,
    blocked_by      text collate "C",
    open            boolean          not null,
    host            text collate "C" not null,
    idempotency_key text collate "C",
    wake_count      bigint           not null,
    wake_at         double precision not null,
    created         double precision not null,
    updated         double precision not null,
    primary key (id, kind),
    constraint priority_is_within_0_and_99 check (priority between 0 and 99),
    constraint a_parent_has_a_kind_and_an_id check ((parent_kind is null) = (parent_id is null)),
    constraint a_claimed_record_is_not_blocked check (session is null or blocked_by is null),
    constraint only_a_wait_has_wake_at check (wake_at = 0 or blocked_by = 'wait')
) with (
    fillfactor = 70,  -- space for the next versions of a row in its page
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,  -- by count: a fifth of a million rows is too late for the index of the queue
    autovacuum_analyze_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0
);

-- A statement must leave the planner no choice: a plan that looks cheap on an empty table, or in a state that all records are in, may scan the
-- whole table later. So only the primary key begins with id, and each index for pages is used only by statements that repeat its condition,
-- which is always true (and on columns that never change, or no update could stay within its page).
--
-- Only what can be claimed now is in the two indexes of the queue: blocked rows at its head would be read by every claim.
create index record_by_urgency on record (state, kind, host, priority, queue_position, seq) where session is null and blocked_by is null;
create index record_by_age on record (state, kind, host, seq) where session is null and blocked_by is null;
create index record_by_session on record (session) where session is not null;
-- Waits by when they are due; waiters of a lock (whose wake_at is 0) by priority and age; records that a hold blocks.
create index record_blocked on record (blocked_by, wake_at, priority, seq) where blocked_by is not null;
-- One index for each filter of find, in creation order.
create index record_by_kind on record (kind, seq) where seq > 0;
create index record_by_state on record (state, kind, seq) where created >= 0;
create index record_by_owner on record (owner, kind, seq) where owner <> '';
create index record_by_scope on record (scope, kind, seq) where scope <> '';
create index record_by_parent on record (parent_id, parent_kind, kind, seq) where id <> '' and parent_id is not null;
create index record_open_child on record (parent_id, parent_kind) where open and parent_id is not null;
create unique index record_by_idempotency_key on record (idempotency_key, kind) where idempotency_key is not null;

create table document (
    kind text collate "C" not null,
    id   text collate "C" not null,
    name text collate "C" not null,
    body bytea            not null,  -- not json or jsonb: those refuse or rewrite what other stores keep
    primary key (kind, id, name)
) with (fillfactor = 80, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, autovacuum_vacuum_cost_delay = 0);

create table history (
    kind    text collate "C" not null,
    id      text collate "C" not null,
    version bigint           not null,
    at      double precision not null,
    who     text collate "C" not null,
    cause   text collate "C" not null,
    before  text collate "C",
    after   text collate "C",
    why     text collate "C" not null,
    primary key (kind, id, version)
);

create table action_request (
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

create table record_lock (
    name text collate "C" primary key,
    kind text collate "C",  -- of the owner of an exclusive lock
    id   text collate "C",
    sort text collate "C" not null default 'exclusive',
    constraint a_lock_has_one_of_three_sorts check (sort in ('exclusive', 'shared', 'counted')),
    constraint only_an_exclusive_lock_has_its_owner_here check ((sort = 'exclusive') = (kind is not null) and (kind is null) = (id is null))
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index record_lock_by_record on record_lock (kind, id);

-- Written while the gate, the row of record_lock, is locked; a gate without owners is deleted by whoever drops the last of them.
create table record_lock_share (
    name text collate "C" not null,
    kind text collate "C" not null,
    id   text collate "C" not null,
    primary key (name, kind, id)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
create index record_lock_share_by_record on record_lock_share (kind, id);

create table record_lock_limit (
    name text collate "C" primary key,
    n    integer          not null check (n > 0),
    at   double precision not null
);

create view record_lock_owner as
select k.name, k.sort, k.kind, k.id from record_lock k where k.sort = 'exclusive'
union all
select s.name, k.sort, s.kind, s.id from record_lock_share s join record_lock k on k.name = s.name;

create table hold (
    name text collate "C" primary key,
    who  text collate "C" not null,
    why  text collate "C" not null
);

-- One row, updated by every commit that creates records: always in one page, pruned in passing.
create table counter (
    singleton boolean primary key default true check (singleton),
    last_seq  bigint  not null
) with (fillfactor = 10, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
insert into counter (last_seq) values (0);

-- A parent of '' stands for all records of the kind; a parent_kind that begins with @ for the records of that scope, its parent_id for their
-- owner. Commits insert deltas: updating the counts would make all writers wait for each other.
create table state_count (
    kind        text collate "C" not null,
    parent_kind text collate "C" not null,
    parent_id   text collate "C" not null,
    state       text collate "C" not null,
    n           bigint           not null,
    primary key (kind, parent_kind, parent_id, state)
) with (fillfactor = 50);
create index state_count_empty on state_count (n) where n = 0;
create index state_count_by_owner on state_count (parent_id, kind) where parent_kind >= '@' and parent_kind < 'A';
create table state_count_delta (
    kind        text collate "C" not null,
    parent_kind text collate "C" not null,
    parent_id   text collate "C" not null,
    state       text collate "C" not null,
    n           bigint           not null
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
create index state_count_delta_by_parent on state_count_delta (kind, parent_kind, parent_id);
create index state_count_delta_by_owner on state_count_delta (parent_id, kind) where parent_kind >= '@' and parent_kind < 'A';

create table queue_position (
    kind             text collate "C" primary key,
    highest_position bigint           not null
) with (fillfactor = 50);
create table parentless_position (
    kind          text collate "C" primary key,
    last_position bigint           not null
) with (fillfactor = 50);

create table remembered_value (
    name  text collate "C" primary key,
    value text collate "C" not null
);

-- The versions of this schema: 1 is schema.sql of the first release, the others are migrations.
create table migration (
    number integer primary key,
    name   text             not null,
    at     double precision not null
);
