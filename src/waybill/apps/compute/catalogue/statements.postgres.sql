-- Where PostgreSQL differs.

-- name: lock_folder
-- SQLite has one writer at a time; here the row is locked.
select entries from compute_folder where folder = :folder for update
