-- What is in storage: objects, their versions, the files of each version, and the values that searches use.

create table inventory_object (
    ark text not null primary key,
    owner text not null,
    head bigint not null check (head >= 1),
    title text not null,
    creator text not null,
    date text not null,
    created text not null,
    modified text not null,
    embargo text not null default '' -- a time until which the files must not be shown; empty without an embargo
);
create index inventory_object_owner on inventory_object (owner, ark);

-- A version is inserted after its files: a version that is in this table is complete.
create table inventory_version (
    ark text not null,
    number bigint not null check (number >= 1),
    request text not null,
    created text not null,
    place text not null,
    sha256 text not null,
    size bigint not null,
    files bigint not null,
    bytes bigint not null,
    primary key (ark, number)
);

-- Rows with a negative number are the files of a version that is being replaced, until the last transaction moves them.
create table inventory_file (
    ark text not null,
    number bigint not null,
    path text not null,
    size bigint not null check (size >= 0),
    sha256 text not null,
    mime text not null,
    place text not null,
    primary key (ark, number, path)
);
create index inventory_file_place on inventory_file (ark, place);

-- Content, one row for all versions that share it: what a fixity audit reads. `audited` is a time, or empty before the first audit. Content
-- in another storage service has no row: it is not ours to audit.
create table inventory_content (
    ark text not null,
    place text not null,
    size bigint not null,
    sha256 text not null,
    audited text not null default '',
    result text not null default '',
    primary key (ark, place)
);
create index inventory_content_audited on inventory_content (audited, ark, place);
create index inventory_content_result on inventory_content (ark, place) where result <> '';

-- A local id belongs to one object of its owner, permanently.
create table inventory_localid (
    owner text not null,
    localid text not null,
    ark text not null,
    primary key (owner, localid)
);
create index inventory_localid_ark on inventory_localid (ark, owner, localid);
create index inventory_localid_any on inventory_localid (localid, ark);

create table inventory_member (
    collection text not null,
    ark text not null,
    primary key (collection, ark)
);
create index inventory_member_ark on inventory_member (ark, collection);

-- The words of title, creator and date, folded, so that a search is an index lookup on both databases.
create table inventory_word (
    word text not null,
    ark text not null,
    primary key (word, ark)
);
create index inventory_word_ark on inventory_word (ark);
