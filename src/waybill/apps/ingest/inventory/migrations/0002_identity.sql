-- Which store this inventory belongs to, how far both had come together, and why it may lack rows (empty: it does not).
create table inventory_identity (
    name text not null primary key check (name = 'inventory'),
    id text not null,
    epoch bigint not null,
    problem text not null
);
