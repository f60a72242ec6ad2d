-- Migrations, the archives and files of each, and what searches need. Times are seconds since 1970; paths are written as `encode_path` does.

create table archive_counter (
    name text not null primary key,
    number bigint not null
);
insert into archive_counter (name, number) values ('migration', 0);
insert into archive_counter (name, number) values ('request', 0);

create table archive_migration (
    number bigint not null primary key,
    id text not null unique,
    request text not null, -- the id of its PUT or MIGRATE
    owner text not null,
    workspace text not null,
    storage text not null,
    label text not null,
    common_path text not null,
    made double precision not null,
    removed double precision -- when it was deleted
);
create index archive_migration_label on archive_migration (label, number);
create index archive_migration_owner on archive_migration (owner, number);
create index archive_migration_workspace on archive_migration (workspace, number);

create table archive_tag (
    migration bigint not null references archive_migration (number),
    tag_key text not null,
    tag_value text not null,
    primary key (migration, tag_key, tag_value)
);
create index archive_tag_key on archive_tag (tag_key, tag_value, migration);

-- The paths of PUTs that are not done: two requests never have the same file.
create table archive_livepath (
    path text not null,
    migration bigint not null references archive_migration (number),
    primary key (path, migration)
);
create index archive_livepath_migration on archive_livepath (migration);

create table archive_archive (
    migration bigint not null references archive_migration (number),
    number bigint not null, -- from 1
    name text not null,
    plan text not null, -- which plan it belongs to: a run of an earlier plan changes nothing
    size bigint not null,
    files bigint not null,
    entries text not null, -- the list of its entries, as JSON of a RecordList
    sha256 text not null default '', -- of the bytes that were sent
    read_size bigint, -- what was read back
    read_sha256 text not null default '',
    checked double precision, -- when it was last read and found right
    primary key (migration, number)
);
create index archive_archive_checked on archive_archive (checked, migration, number);

create table archive_file (
    migration bigint not null,
    number bigint not null, -- from 1, in the order of the archives
    archive bigint not null,
    path text not null,
    name text not null, -- the last part of the path
    kind text not null,
    size bigint not null,
    mtime double precision not null,
    sha256 text not null default '',
    link text not null default '',
    primary key (migration, number)
);
create index archive_file_archive on archive_file (migration, archive, number);
create index archive_file_path on archive_file (path, migration);
create index archive_file_name on archive_file (name, migration);
create index archive_file_sha256 on archive_file (sha256, migration) where sha256 <> '';

create table archive_finding (
    migration bigint not null,
    archive bigint not null,
    storage text not null,
    found double precision not null,
    problem text not null,
    primary key (migration, archive)
);

-- Who gets mail, as the client of JDMA sets it.
create table archive_person (
    name text not null primary key,
    email text not null,
    notify integer not null default 1
);

-- Of which thing of another application a migration is the copy: its key, as `waybill trace` has it, and which version of it.

create table archive_origin (
    migration bigint not null primary key references archive_migration (number),
    origin text not null,
    version bigint not null
);
create index archive_origin_origin on archive_origin (origin, version, migration);
