-- Of which thing of another application a migration is the copy: its key, as `waybill trace` has it, and which version of it.

create table archive_origin (
    migration bigint not null primary key references archive_migration (number),
    origin text not null,
    version bigint not null
);
create index archive_origin_origin on archive_origin (origin, version, migration);
