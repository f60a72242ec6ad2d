-- The statements of the toy catalogue.

-- name: enter
insert into toy_file (path, size, bill) values (:path, :size, :bill) -- :path is no second parameter; it's said in a comment

-- name: forget
delete from toy_file where bill = :bill

-- name: clear_some
delete from toy_file where path in (select path from toy_file order by path limit :portion)

-- name: under
select path, size from toy_file where path like :folder || '/%' order by path

-- name: of_bill
select path from toy_file where bill = :bill

-- name: count
select count(*) as n from toy_file

-- name: odd
-- Everything that must survive the translation: a quoted colon, a quoted percent sign, a cast.
select ':path' as quoted, '100%' as percent, cast(:n as integer) % 10 as rest, 'it''s; fine' as semicolon

-- name: dialect
select 'common' as name
