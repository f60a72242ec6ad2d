-- A store in one SQLite file.
--
-- record     one row per record; seq, its creation number, is the row's own number, so that all else points at it with one integer
-- document   the named JSON of a record, as the bytes that were written
-- history    one line per commit of a record
-- key        names that are held: at most one record each
-- session    workers that live; a record that is held points at one
-- ask        what was asked of a record while somebody held it
-- tally      how many records are in each state, in all (parent '') and of each parent; moved by the commit that moves the record
-- turn       how far each kind's turn has come
-- mark, kept names set in the store
-- counter    one row: the last seq given, and the time of the newest write

-- name: record
create table record (
    seq         integer primary key,
    kind        text    not null,
    id          text    not null,
    state       text    not null,
    version     integer not null,
    parent_kind text,
    parent_id   text,
    owner       text    not null,
    priority    integer not null check (priority between 0 and 99),
    turn        integer not null,
    last_done   text,
    retries     integer not null,
    tries       integer not null,
    message     text    not null,
    session     text    references session (name),
    keys        text    not null, -- a JSON list, or '' for none
    gates       text    not null, -- a JSON list, or '' for none
    parked      text    check (parked in ('wait', 'children') or parked glob 'key ?*' or parked glob 'mark ?*'),
    open        integer not null check (open in (0, 1)),
    host        text    not null,
    request     text,
    nudges      integer not null,
    wake_at     real    not null,
    created     real    not null,
    updated     real    not null,
    check (version >= seq),
    check (session is null or parked is null), -- what is held is not waiting
    check (wake_at = 0 or parked is 'wait'),
    check ((parent_kind is null) = (parent_id is null))
) strict;

-- name: record_name
create unique index record_name on record (kind, id);

-- name: record_request
-- A request makes one record of its kind, however often and by whomever it is repeated.
create unique index record_request on record (kind, request) where request is not null;

-- name: record_claim
-- Only what can be claimed now, in the order in which it is handed out: a hundred thousand that wait cost a claim nothing.
create index record_claim on record (kind, state, host, priority, turn) where session is null and parked is null;

-- name: record_age
-- The same by age: every index of this table ends in seq.
create index record_age on record (kind, state, host) where session is null and parked is null;

-- name: record_state
create index record_state on record (kind, state);

-- name: record_kind
create index record_kind on record (kind);

-- name: record_owner
create index record_owner on record (kind, owner) where owner <> '';

-- name: record_parent
create index record_parent on record (kind, parent_kind, parent_id) where parent_id is not null;

-- name: record_open
-- Whether a parent has an open child, whatever the child's kind.
create index record_open on record (parent_kind, parent_id) where parent_id is not null and open = 1;

-- name: record_held
create index record_held on record (session) where session is not null;

-- name: record_parked
-- Waits by when they are due; waiters of a key (their wake_at is 0) by urgency.
create index record_parked on record (parked, wake_at, priority, turn) where parked is not null;

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
    event   text    not null check (event <> ''),
    before  text,
    after   text    not null,
    why     text    not null,
    primary key (record, version)
) strict, without rowid;

-- name: key
create table key (
    name   text primary key,
    record integer not null references record (seq) on delete cascade
) strict, without rowid;

-- name: key_record
create index key_record on key (record);

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

-- name: ask
create table ask (
    record integer primary key references record (seq) on delete cascade,
    action text not null,
    who    text not null,
    why    text not null,
    args   blob not null
) strict;

-- name: tally
create table tally (
    kind        text    not null,
    parent_kind text    not null,
    parent_id   text    not null,
    state       text    not null,
    n           integer not null check (n >= 0),
    primary key (kind, parent_kind, parent_id, state)
) strict, without rowid;

-- name: turn
create table turn (
    kind text primary key,
    at   integer not null
) strict, without rowid;

-- name: mark
create table mark (
    name text primary key,
    who  text not null,
    why  text not null,
    at   real not null
) strict, without rowid;

-- name: kept
create table kept (
    name  text primary key,
    value text not null
) strict, without rowid;

-- name: counter
create table counter (
    one    integer primary key check (one = 1),
    seq    integer not null,
    newest real    not null
) strict;

-- name: counter_row
insert into counter values (1, 0, 0);
