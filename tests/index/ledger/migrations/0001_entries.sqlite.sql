create table ledger_entry (id integer primary key, title text not null) strict;
create table ledger_count (n integer not null) strict;
insert into ledger_count values (0);
create virtual table ledger_search using fts5 (title, content = 'ledger_entry', content_rowid = 'id', tokenize = 'trigram');

create trigger ledger_entry_insert after insert on ledger_entry begin
    update ledger_count set n = n + case when new.id > 0 then 1 else 0 end; -- the end; of a case is not that of the trigger
    insert into ledger_search (rowid, title) values (new.id, new.title);
end;
create trigger ledger_entry_delete after delete on ledger_entry begin
    update ledger_count set n = n - 1;
    insert into ledger_search (ledger_search, rowid, title) values ('delete', old.id, old.title);
end;
CREATE TRIGGER ledger_entry_update AFTER UPDATE ON ledger_entry BEGIN
    insert into ledger_search (ledger_search, rowid, title) values ('delete', old.id, old.title);
    insert into ledger_search (rowid, title) values (new.id, new.title);
END
