-- An object that arrives again as it was, in whatever interval, is the arrival that is known.
create index lots_arrival_uri on lots_arrival (dataset, uri);

-- Lots that were overdue and told of. Removed when the lot is there, and that is told.
create table lots_overdue (
    dataset    text not null,
    minute     bigint not null,
    told       text not null,              -- ISO 8601
    primary key (dataset, minute)
);
