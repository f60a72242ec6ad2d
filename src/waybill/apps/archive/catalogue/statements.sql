-- The statements of the catalogue of archive. Every list is a page, ordered by its key.

-- name: count_up
update archive_counter set number = number + 1 where name = :name

-- name: raise_counter
update archive_counter set number = :least where name = :name and number < :least

-- name: counter
select number from archive_counter where name = :name

-- name: enter_migration
insert into archive_migration (number, id, request, owner, workspace, storage, label, common_path, made)
values (:number, :id, :request, :owner, :workspace, :storage, :label, :common_path, :made)

-- name: enter_origin
insert into archive_origin (migration, origin, version) values (:migration, :origin, :version)

-- name: remove_origin
delete from archive_origin where migration = :migration

-- name: origin
select origin, version from archive_origin where migration = :migration

-- name: migrations_of_origin
select migration, version from archive_origin where origin = :origin order by version, migration limit :row_limit

-- name: forget_migration
delete from archive_migration where number = :number

-- name: migration
select * from archive_migration where number = :number

-- name: migrations
select * from archive_migration
where number > :after_number and (:owner = '' or owner = :owner) and (:workspace = '' or workspace = :workspace)
and (:label = '' or label = :label)
order by number limit :row_limit

-- name: newest_migrations
select * from archive_migration
where number < :before and (:owner = '' or owner = :owner) and (:workspace = '' or workspace = :workspace)
and (:label = '' or label = :label)
order by number desc limit :row_limit

-- name: migrations_by_tag
select m.* from archive_tag t join archive_migration m on m.number = t.migration
where t.tag_key = :tag_key and (:tag_value = '' or t.tag_value = :tag_value) and t.migration > :after_number
order by t.migration limit :row_limit

-- name: change_label
update archive_migration set label = :label where number = :number

-- name: change_storage
update archive_migration set storage = :storage where number = :number

-- name: mark_removed
update archive_migration set removed = :removed where number = :number

-- name: tags
select tag_key, tag_value from archive_tag where migration = :migration order by tag_key, tag_value

-- name: add_tag
insert into archive_tag (migration, tag_key, tag_value) values (:migration, :tag_key, :tag_value) on conflict do nothing

-- name: remove_tag
delete from archive_tag where migration = :migration and tag_key = :tag_key and (:tag_value = '' or tag_value = :tag_value)

-- name: remove_tags
delete from archive_tag where migration = :migration

-- name: add_livepath
insert into archive_livepath (path, migration) values (:path, :migration) on conflict do nothing

-- name: livepath_at
select path, migration from archive_livepath where path = :path and migration <> :migration order by migration limit 1

-- name: livepath_below
select path, migration from archive_livepath where path >= :first and path < :beyond and migration <> :migration order by path limit 1

-- name: remove_livepaths
delete from archive_livepath where migration = :migration

-- name: enter_archive
insert into archive_archive (migration, number, name, plan, size, files, entries, sha256)
values (:migration, :number, :name, :plan, :size, :files, :entries, :sha256)
on conflict (migration, number) do update set
    name = excluded.name, plan = excluded.plan, size = excluded.size, files = excluded.files, entries = excluded.entries,
    sha256 = excluded.sha256, read_size = null, read_sha256 = '', checked = null

-- name: remove_archives_beyond
delete from archive_archive where migration = :migration and number > :number

-- name: archives
select * from archive_archive where migration = :migration and number > :after_number order by number limit :row_limit

-- name: archive
select * from archive_archive where migration = :migration and number = :number

-- name: sum_archives
-- Number 0 is the catalogue file, which counts for nothing.
select count(*) as archives, coalesce(sum(size), 0) as bytes, coalesce(sum(files), 0) as files from archive_archive
where migration = :migration and number > 0

-- name: note_sent
update archive_archive set sha256 = :sha256, size = :size, entries = :entries, read_size = null, read_sha256 = '', checked = null
where migration = :migration and number = :number and plan = :plan

-- name: note_not_sent
update archive_archive set sha256 = '', read_size = null, read_sha256 = '', checked = null
where migration = :migration and number = :number

-- name: note_read
update archive_archive set read_size = :read_size, read_sha256 = :read_sha256 where migration = :migration and number = :number

-- name: note_checked
update archive_archive set checked = :checked where migration = :migration and number = :number

-- name: archives_to_scrub
select a.migration, a.number, a.name, a.size, a.sha256, a.checked, m.id, m.storage from archive_archive a
join archive_migration m on m.number = a.migration
where a.number > 0 and a.checked is not null and a.checked < :before and m.removed is null and (:storage = '' or m.storage = :storage)
order by a.checked, a.migration, a.number limit :row_limit

-- name: remove_archives
delete from archive_archive where migration = :migration

-- name: remove_files_of_archive
delete from archive_file where migration = :migration and archive = :archive

-- name: remove_files
delete from archive_file where migration = :migration and number in
(select number from archive_file where migration = :migration order by number limit :row_limit)

-- name: files
select * from archive_file where migration = :migration and number > :after_number order by number limit :row_limit

-- name: files_of_archive
select * from archive_file where migration = :migration and archive = :archive and number > :after_number order by number limit :row_limit

-- name: files_by_path
select f.*, m.owner, m.workspace, m.label, m.storage, m.id from archive_file f join archive_migration m on m.number = f.migration
where (f.path = :path or (f.path >= :first and f.path < :beyond)) and (f.path > :after_path or (f.path = :after_path and f.migration > :after_migration))
order by f.path, f.migration limit :row_limit

-- name: files_by_name
select f.*, m.owner, m.workspace, m.label, m.storage, m.id from archive_file f join archive_migration m on m.number = f.migration
where f.name = :name and f.migration >= :after_migration and (f.migration > :after_migration or f.number > :after_number)
order by f.migration, f.number limit :row_limit

-- name: files_by_digest
select f.*, m.owner, m.workspace, m.label, m.storage, m.id from archive_file f join archive_migration m on m.number = f.migration
where f.sha256 = :sha256 and f.sha256 <> '' and f.migration >= :after_migration and (f.migration > :after_migration or f.number > :after_number)
order by f.migration, f.number limit :row_limit

-- name: enter_finding
insert into archive_finding (migration, archive, storage, found, problem) values (:migration, :archive, :storage, :found, :problem)
on conflict (migration, archive) do update set storage = excluded.storage, found = excluded.found, problem = excluded.problem

-- name: remove_finding
delete from archive_finding where migration = :migration and archive = :archive

-- name: remove_findings
delete from archive_finding where migration = :migration

-- name: findings
select f.*, m.id, m.workspace, m.owner, m.label from archive_finding f join archive_migration m on m.number = f.migration
where f.migration > :after_migration or (f.migration = :after_migration and f.archive > :after_archive)
order by f.migration, f.archive limit :row_limit

-- name: person
select name, email, notify from archive_person where name = :name

-- name: enter_person
insert into archive_person (name, email, notify) values (:name, :email, :notify)
on conflict (name) do update set email = excluded.email, notify = excluded.notify

-- name: file_at_or_below
select number from archive_file where migration = :migration and (path = :path or (path >= :first and path < :beyond)) limit 1
