-- Of which thing of another application an object that arrived is a part: its key, as `waybill trace` has it.
create table lots_origin (
    origin  text not null,
    dataset text not null,
    uri     text not null,
    primary key (origin, dataset, uri)
);
create index lots_origin_uri on lots_origin (dataset, uri);
