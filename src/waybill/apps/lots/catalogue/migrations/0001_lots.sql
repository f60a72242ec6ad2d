-- Lots and runs by minute: the start of a lot, in minutes since the beginning of year 1. All of it is the truth and can be
-- rebuilt from nothing else: rows are added and marked, never removed.

-- The lots of a dataset, each generation of them. The newest one is the lot; older ones are superseded.
create table lots_lot (
    dataset    text not null,              -- name/version
    minute     bigint not null,
    generation integer not null,           -- from 1
    state      text not null,              -- complete, empty; removed: superseded, and its data are gone
    manifest   text not null,              -- the name of its manifest
    producer   text not null,              -- what published it: a second publication by the same producer is the first
    published  text not null,              -- ISO 8601
    count      bigint not null,
    bytes      bigint,                     -- null: not known
    primary key (dataset, minute, generation)
);
create unique index lots_lot_producer on lots_lot (dataset, minute, producer);

-- The runs of an arc, each generation of them, for ever: an event that comes again finds its run here.
create table lots_run (
    arc        text not null,              -- project/arc
    minute     bigint not null,
    generation integer not null,           -- from 1
    source_key bigint not null,            -- grows with every generation of every source and every replay: equal keys are one run
    state      text not null,              -- waiting, running, complete, partial, missing
    sources    text not null,              -- JSON: the generations of the sources that it read
    changed    text not null,              -- ISO 8601
    message    text not null,
    primary key (arc, minute, generation)
);
create unique index lots_run_source_key on lots_run (arc, minute, source_key);

-- What has arrived for a lot. generation 0: in no manifest yet.
create table lots_arrival (
    dataset    text not null,
    minute     bigint not null,
    uri        text not null,
    size       bigint,
    sha256     text,
    modified   text,
    arrived    text not null,              -- ISO 8601
    generation integer not null,
    version    integer not null,           -- counts how often it came with other bytes
    primary key (dataset, minute, uri)
);
create index lots_arrival_new on lots_arrival (dataset, generation, minute);

-- One letter for each lot of a day, for reports over years: what is in lots_lot and lots_run, said shortly, and changed in the
-- same transaction. A day without a row has nothing.
create table lots_day (
    subject    text not null,              -- "dataset NAME/VERSION" or "arc PROJECT/ARC"
    day        integer not null,           -- since the beginning of year 1
    classes    text not null,
    primary key (subject, day)
);
