-- The statements of compute's catalogue. Every list is a page, ordered by its key.

-- name: lock_folder
-- Whoever changes the entries of a directory takes its row first: the number of entries is exact, and a directory that is being removed
-- gets no new entry.
select entries from compute_folder where folder = :folder

-- name: folder
select entries from compute_folder where folder = :folder

-- name: make_folder
insert into compute_folder (folder, path) values (:folder, :path) on conflict (folder) do nothing

-- name: count_entries
update compute_folder set entries = entries + :change where folder = :folder

-- name: remove_folder
delete from compute_folder where folder = :folder and entries = 0

-- name: entry
select name, type, content, etag, size, md5, content_type, durability, headers, mtime from compute_entry
where folder = :folder and name = :name

-- name: write_entry
insert into compute_entry (folder, name, type, content, etag, size, md5, content_type, durability, headers, mtime)
values (:folder, :name, :type, :content, :etag, :size, :md5, :content_type, :durability, :headers, :mtime)
on conflict (folder, name) do update set
    type = excluded.type, content = excluded.content, etag = excluded.etag, size = excluded.size, md5 = excluded.md5,
    content_type = excluded.content_type, durability = excluded.durability, headers = excluded.headers, mtime = excluded.mtime

-- name: remove_entry
delete from compute_entry where folder = :folder and name = :name

-- name: list_by_name
select name, type, content, etag, size, md5, content_type, durability, headers, mtime from compute_entry
where folder = :folder and name >= :marker and (:type = '' or type = :type) order by name limit :row_limit

-- name: list_by_name_reverse
select name, type, content, etag, size, md5, content_type, durability, headers, mtime from compute_entry
where folder = :folder and (:marker = '' or name <= :marker) and (:type = '' or type = :type) order by name desc limit :row_limit

-- name: list_by_mtime
-- The newest first; entries of one moment in the order of their names, from the last to the first.
select name, type, content, etag, size, md5, content_type, durability, headers, mtime from compute_entry
where folder = :folder and (mtime < :mtime or (mtime = :mtime and (:marker = '' or name <= :marker))) and (:type = '' or type = :type)
order by mtime desc, name desc limit :row_limit

-- name: list_by_mtime_reverse
select name, type, content, etag, size, md5, content_type, durability, headers, mtime from compute_entry
where folder = :folder and (mtime > :mtime or (mtime = :mtime and name >= :marker)) and (:type = '' or type = :type)
order by mtime, name limit :row_limit

-- name: add_garbage
insert into compute_garbage (content, since) values (:content, :since) on conflict (content) do nothing

-- name: garbage
select content from compute_garbage where since < :before order by since, content limit :row_limit

-- name: forget_garbage
delete from compute_garbage where content = :content

-- name: named
-- Whether an entry names these bytes.
select 1 as found from compute_entry where content = :content limit 1

-- name: clear_entries
delete from compute_entry where (folder, name) in (select folder, name from compute_entry limit :row_limit)
