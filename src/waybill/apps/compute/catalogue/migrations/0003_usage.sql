-- What the tasks of archived jobs have used, hour by hour: what the hourly usage reports are written from.

create table compute_usage (
    account text not null,
    hour text not null, -- 2026/11/19/03
    job text not null,
    phase integer not null,
    memory bigint not null, -- megabytes that the phase asked for
    disk bigint not null, -- gigabytes
    milliseconds bigint not null, -- of all its tasks that began in this hour
    tasks bigint not null,
    bytes_in bigint not null,
    bytes_out bigint not null,
    reported integer not null, -- 1: a report holds it
    primary key (account, hour, job, phase)
);
create index compute_usage_unreported on compute_usage (account, hour) where reported = 0;
