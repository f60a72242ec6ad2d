create table ledger_entry (id bigint primary key, title text not null);
create table ledger_count (n bigint not null);
insert into ledger_count values (0);
create index ledger_entry_title on ledger_entry using gin (trigrams(title));

create function ledger_keep_count() returns trigger language plpgsql as $$
declare difference bigint := case when tg_op = 'INSERT' then 1 else -1 end;
begin
    update ledger_count set n = n + difference;
    return null;
end $$;
create trigger ledger_entry_count after insert or delete on ledger_entry for each row execute function ledger_keep_count()
