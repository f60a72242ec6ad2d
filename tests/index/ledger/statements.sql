-- name: enter
insert into ledger_entry (id, title) values (:id, :title) on conflict (id) do update set title = excluded.title

-- name: remove
delete from ledger_entry where id = :id

-- name: count
select n from ledger_count

-- name: page
select id, title from ledger_entry where id > :after_id order by id limit :row_limit

-- name: find
select e.id, e.title from ledger_search s join ledger_entry e on e.id = s.rowid where s.title match :phrase order by e.id
