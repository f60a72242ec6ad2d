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
select name, type, content, start, etag, size, md5, content_type, durability, headers, mtime from compute_entry
where folder = :folder and name = :name

-- name: write_entry
insert into compute_entry (folder, name, type, content, start, etag, size, md5, content_type, durability, headers, mtime)
values (:folder, :name, :type, :content, :start, :etag, :size, :md5, :content_type, :durability, :headers, :mtime)
on conflict (folder, name) do update set
    type = excluded.type, content = excluded.content, start = excluded.start, etag = excluded.etag, size = excluded.size, md5 = excluded.md5,
    content_type = excluded.content_type, durability = excluded.durability, headers = excluded.headers, mtime = excluded.mtime

-- name: remove_entry
delete from compute_entry where folder = :folder and name = :name

-- name: list_by_name
select name, type, content, start, etag, size, md5, content_type, durability, headers, mtime from compute_entry
where folder = :folder and name >= :marker and (:type = '' or type = :type) order by name limit :row_limit

-- name: list_by_name_reverse
select name, type, content, start, etag, size, md5, content_type, durability, headers, mtime from compute_entry
where folder = :folder and (:marker = '' or name <= :marker) and (:type = '' or type = :type) order by name desc limit :row_limit

-- name: list_by_mtime
-- The newest first; entries of one moment in the order of their names, from the last to the first.
select name, type, content, start, etag, size, md5, content_type, durability, headers, mtime from compute_entry
where folder = :folder and (mtime < :mtime or (mtime = :mtime and (:marker = '' or name <= :marker))) and (:type = '' or type = :type)
order by mtime desc, name desc limit :row_limit

-- name: list_by_mtime_reverse
select name, type, content, start, etag, size, md5, content_type, durability, headers, mtime from compute_entry
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

-- name: last_job
-- Taken by whoever makes a job, before anything else: two get different ids, in the order of their commits.
select job from compute_lastjob where one = 1

-- name: set_last_job
update compute_lastjob set job = :job where one = 1

-- name: make_job
insert into compute_job (job, account, name, manifest, state, created, last_input)
values (:job, :account, :name, :manifest, 'running', :now, :now) on conflict (job) do nothing

-- name: job
select job, account, name, manifest, state, created, last_input, input_ended, cancelled, archive_started, done, archived, stats
from compute_job where job = :job

-- name: lock_job
select job, state, input_ended, cancelled from compute_job where job = :job

-- name: note_input
update compute_job set last_input = :now where job = :job

-- name: end_input
update compute_job set input_ended = :now where job = :job and input_ended = 0

-- name: cancel_job
update compute_job set cancelled = :now, input_ended = case when input_ended = 0 then :now else input_ended end
where job = :job and cancelled = 0 and done = 0

-- name: start_archive
update compute_job set archive_started = case when archive_started = 0 then :now else archive_started end,
    done = case when done = 0 then :now else done end
where job = :job

-- name: finish_archive
update compute_job set state = 'done', archived = :now, stats = :stats where job = :job and archived = 0

-- name: remove_job
delete from compute_job where job = :job

-- name: list_running
select job, created from compute_job where account = :account and state = 'running' order by job desc limit :row_limit

-- name: list_named
select job, created from compute_job where account = :account and name = :name order by job desc limit :row_limit

-- name: list_idle_input
select job from compute_job where state = 'running' and input_ended = 0 and last_input < :before order by last_input limit :row_limit

-- name: list_jobs
select job, account, state, created, archived from compute_job where job > :after order by job limit :row_limit

-- name: make_log
insert into compute_log (job, phase) values (:job, :phase) on conflict (job, phase) do nothing

-- name: log
select phase, segments, keys, tasks, errors, retries, ended from compute_log where job = :job and phase = :phase

-- name: logs
select phase, segments, keys, tasks, errors, retries, ended from compute_log where job = :job order by phase

-- name: lock_log
select segments from compute_log where job = :job and phase = :phase

-- name: end_log
update compute_log set ended = 1 where job = :job and phase = :phase

-- name: extend_log
update compute_log set segments = segments + 1, keys = keys + :keys, tasks = tasks + :tasks, errors = errors + :errors,
    retries = retries + :retries
where job = :job and phase = :phase

-- name: add_segment
insert into compute_segment (job, phase, number, source, object, keys, errors)
values (:job, :phase, :number, :source, :object, :keys, :errors)

-- name: find_segment
select number from compute_segment where job = :job and phase = :phase and source = :source

-- name: segments
select number, object, keys, errors from compute_segment
where job = :job and phase = :phase and number >= :after order by number limit :row_limit

-- name: latest_segments
select number, object, keys, errors from compute_segment
where job = :job and phase = :phase and number < :before order by number desc limit :row_limit

-- name: latest_failed_segments
select number, object, keys, errors from compute_segment
where job = :job and phase = :phase and number < :before and errors > 0 order by number desc limit :row_limit

-- name: remove_segments
delete from compute_segment where job = :job and phase = :phase and number < :before

-- name: remove_logs
delete from compute_log where job = :job

-- name: write_usage
insert into compute_usage (account, hour, job, phase, memory, disk, milliseconds, tasks, bytes_in, bytes_out, reported)
values (:account, :hour, :job, :phase, :memory, :disk, :milliseconds, :tasks, :bytes_in, :bytes_out, 0)
on conflict (account, hour, job, phase) do nothing

-- name: unreported_usage
select distinct account, hour from compute_usage where reported = 0 order by account, hour limit :row_limit

-- name: usage_of_hour
select job, phase, memory, disk, milliseconds, tasks, bytes_in, bytes_out from compute_usage
where account = :account and hour = :hour and (job > :job or (job = :job and phase > :phase)) order by job, phase limit :row_limit

-- name: mark_usage
update compute_usage set reported = 1 where account = :account and hour = :hour and job = :job and reported = 0

-- name: remove_usage
delete from compute_usage where hour < :before and reported = 1
