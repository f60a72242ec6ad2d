-- One row a file; the semicolon here; must not end anything.
create table toy_file (
    path text not null primary key,
    size bigint not null check (size >= 0),
    bill text not null default 'none;'
);
create index toy_file_bill on toy_file (bill);
