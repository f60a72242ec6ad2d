-- The schema of a store in one SQLite file.
--
-- record            one row per record; seq, its creation number, is the rowid, so that other tables refer to it with one integer
-- document          the named JSON documents of a record, as the bytes that were written
-- history           one row per commit of a record that has a cause
-- record_lock       the locks that are owned: an exclusive one by one record, a shared or counted one by several
-- record_lock_limit how many records may own a counted lock, as the commit said that asked for it last
-- session           the sessions of live workers; a claimed record refers to one
-- action_request    the action that was requested of a record while it was claimed
-- state_count       how many records are in each state, in all (parent '') and of each parent; written by the commit that moves the record;
--                   a parent_kind that begins with @ stands for the records of that scope, and its parent_id for their owner
-- queue_position    for each kind: the highest queue position that was claimed, and the last one given to a record without a parent
-- hold              the holds that are set
-- remembered_value  what remember() keeps
-- counter           one row: the last seq, and the time of the newest write

-- name: record
create table record (
    seq             integer primary key,
    kind            text    not null,
    id              text    not null,
    state           text    not null,
    version         integer not null,
    parent_kind     text,
    parent_id       text,
    owner           text    not null,
    scope           text    not null,
    priority        integer not null check (priority between 0 and 99),
    queue_position  integer not null,
    last_done       text,
    resume_count    integer not null,
    error_count     integer not null,
    message         text    not null,
    session         text    references session (name),
    locks           text    not null, -- a JSON list, or '' for none
    hold_names      text    not null, -- a JSON list, or '' for none
    blocked_by      text    check (blocked_by in ('wait', 'children') or blocked_by glob 'lock ?*' or blocked_by glob 'hold ?*'),
    open            integer not null check (open in (0, 1)),
    host            text    not null,
    idempotency_key text,
    wake_count      integer not null,
    wake_at         real    not null,
    created         real    not null,
    updated         real    not null,
    check (version >= seq),
    check (session is null or blocked_by is null), -- a claimed record is not blocked
    check (wake_at = 0 or blocked_by is 'wait'),
    check ((parent_kind is null) = (parent_id is null))
) strict;

-- name: record_by_id
create unique index record_by_id on record (kind, id);

-- name: record_by_idempotency_key
-- An idempotency key creates one record of its kind, however often the request is repeated.
create unique index record_by_idempotency_key on record (kind, idempotency_key) where idempotency_key is not null;

-- name: record_by_urgency
-- Only what can be claimed now, in the order of claims: a hundred thousand blocked records cost a claim nothing.
create index record_by_urgency on record (kind, state, host, priority, queue_position) where session is null and blocked_by is null;

-- name: record_by_age
-- The same by age: every index of this table ends in seq, the rowid.
create index record_by_age on record (kind, state, host) where session is null and blocked_by is null;

-- name: record_by_state
create index record_by_state on record (kind, state);

-- name: record_by_kind
create index record_by_kind on record (kind);

-- name: record_by_owner
create index record_by_owner on record (kind, owner) where owner <> '';

-- name: record_by_scope
create index record_by_scope on record (kind, scope) where scope <> '';

-- name: record_by_parent
create index record_by_parent on record (kind, parent_kind, parent_id) where parent_id is not null;

-- name: record_open_child
-- Whether a parent has an open child, whatever the child's kind.
create index record_open_child on record (parent_kind, parent_id) where parent_id is not null and open = 1;

-- name: record_by_session
create index record_by_session on record (session) where session is not null;

-- name: record_blocked
-- Waits by when they are due; waiters of a lock (their wake_at is 0) by priority and age.
create index record_blocked on record (blocked_by, wake_at, priority) where blocked_by is not null;

-- name: document
create table document (
    record integer not null references record (seq) on delete cascade,
    name   text    not null,
    body   blob    not null,
    primary key (record, name)
) strict, without rowid;

-- name: history
create table history (
    record  integer not null references record (seq) on delete cascade,
    version integer not null,
    at      real    not null,
    who     text    not null,
    cause   text    not null check (cause <> ''),
    before  text,
    after   text    not null,
    why     text    not null,
    primary key (record, version)
) strict, without rowid;

-- name: record_lock
create table record_lock (
    name   text    not null,
    record integer not null references record (seq) on delete cascade,
    sort   text    not null check (sort in ('exclusive', 'shared', 'counted')),
    primary key (name, record)
) strict, without rowid;

-- name: record_lock_exclusive
create unique index record_lock_exclusive on record_lock (name) where sort = 'exclusive';

-- name: record_lock_limit
create table record_lock_limit (
    name text    primary key,
    n    integer not null check (n > 0),
    at   real    not null
) strict, without rowid;

-- name: record_lock_by_record
create index record_lock_by_record on record_lock (record);

-- name: session
create table session (
    name     text primary key,
    host     text not null,
    ttl      real not null check (ttl > 0),
    since    real not null,
    expires  real not null,
    about    blob not null,
    progress blob not null
) strict, without rowid;

-- name: action_request
create table action_request (
    record integer primary key references record (seq) on delete cascade,
    action text not null,
    who    text not null,
    why    text not null,
    args   blob not null
) strict;

-- name: state_count
create table state_count (
    kind        text    not null,
    parent_kind text    not null,
    parent_id   text    not null,
    state       text    not null,
    n           integer not null check (n >= 0),
    primary key (kind, parent_kind, parent_id, state)
) strict, without rowid;

-- name: state_count_by_owner
create index state_count_by_owner on state_count (kind, parent_id) where parent_kind >= '@' and parent_kind < 'A';

-- name: queue_position
create table queue_position (
    kind                text primary key,
    highest_position    integer not null,
    parentless_position integer not null
) strict, without rowid;

-- name: hold
create table hold (
    name text primary key,
    who  text not null,
    why  text not null,
    at   real not null
) strict, without rowid;

-- name: remembered_value
create table remembered_value (
    name  text primary key,
    value text not null
) strict, without rowid;

-- name: counter
create table counter (
    singleton    integer primary key check (singleton = 1),
    last_seq     integer not null,
    newest_write real    not null
) strict;

-- name: counter_row
insert into counter values (1, 0, 0);
