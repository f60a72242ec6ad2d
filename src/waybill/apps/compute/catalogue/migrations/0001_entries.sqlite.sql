-- Directories and what is in them. A folder is the digest of a directory's path, so that a key is as long for every depth.

create table compute_folder (
    folder text not null primary key,
    path text not null,
    entries bigint not null default 0 check (entries >= 0)
) without rowid;

create table compute_entry (
    folder text not null references compute_folder (folder),
    name text not null,
    type text not null check (type in ('object', 'directory')),
    content text not null default '', -- the object that holds its bytes
    start bigint not null default 0, -- where they begin in it: small outputs of tasks share one
    etag text not null default '',
    size bigint not null default 0,
    md5 text not null default '',
    content_type text not null default '',
    durability integer not null default 0,
    headers text not null default '{}', -- those that are sent back with it, as JSON
    mtime bigint not null, -- milliseconds
    primary key (folder, name),
    check ((type = 'object') = (content <> ''))
) without rowid;
create index compute_entry_mtime on compute_entry (folder, mtime, name);
create index compute_entry_content on compute_entry (content) where content <> '';

-- Bytes that an entry has given up: removed a while later, unless a link names them.
create table compute_garbage (
    content text not null primary key,
    since bigint not null
);
create index compute_garbage_since on compute_garbage (since, content);
