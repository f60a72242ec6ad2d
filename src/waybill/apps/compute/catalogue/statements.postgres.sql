-- Where PostgreSQL differs.

-- name: lock_folder
-- SQLite has one writer at a time; here the row is locked.
select entries from compute_folder where folder = :folder for update

-- name: last_job
select job from compute_lastjob where one = 1 for update

-- name: lock_job
-- Shared, because many add input at once; who ends the input changes the row, and waits for them.
select job, state, input_ended, cancelled from compute_job where job = :job for share

-- name: lock_log
-- A segment gets its number under this lock: numbers appear in order, and a reader never passes one by.
select segments from compute_log where job = :job and phase = :phase for update
