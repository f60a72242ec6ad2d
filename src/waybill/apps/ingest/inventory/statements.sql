-- The statements of the inventory. Every list is a page: ordered by its key, after the last row of the previous page.

-- name: version
select ark, number, request, created, place, sha256, size, files, bytes from inventory_version where ark = :ark and number = :number

-- name: versions
select ark, number, request, created, place, sha256, size, files, bytes from inventory_version
where ark = :ark and number > :after order by number limit :row_limit

-- name: head
select place from inventory_version where ark = :ark order by number desc limit 1

-- name: object
select ark, owner, head, title, creator, date, created, modified, embargo from inventory_object where ark = :ark

-- name: enter_object
-- A version that is older than the newest one does not change the object's row. A version without an owner does not remove the owner:
-- otherwise the next depositor would become the owner.
insert into inventory_object (ark, owner, head, title, creator, date, created, modified, embargo)
values (:ark, :owner, :number, :title, :creator, :date, :created, :created, :embargo)
on conflict (ark) do update set
    owner = case when excluded.owner = '' then inventory_object.owner else excluded.owner end,
    head = excluded.head, title = excluded.title, creator = excluded.creator, date = excluded.date, modified = excluded.modified,
    embargo = excluded.embargo
where excluded.head >= inventory_object.head

-- name: close_object
update inventory_object set embargo = :embargo where ark = :ark

-- name: lower_head
-- The storage says which version is the newest; a newer version that was recorded meanwhile stays.
update inventory_object set head = :number where ark = :ark and head > :number
and not exists (select 1 from inventory_version v where v.ark = inventory_object.ark and v.number > :number)

-- name: enter_version
insert into inventory_version (ark, number, request, created, place, sha256, size, files, bytes)
values (:ark, :number, :request, :created, :place, :sha256, :size, :files, :bytes)
on conflict (ark, number) do update set
    request = excluded.request, created = excluded.created, place = excluded.place, sha256 = excluded.sha256, size = excluded.size,
    files = excluded.files, bytes = excluded.bytes

-- name: enter_file
insert into inventory_file (ark, number, path, size, sha256, mime, place) values (:ark, :number, :path, :size, :sha256, :mime, :place)
on conflict (ark, number, path) do update set size = excluded.size, sha256 = excluded.sha256, mime = excluded.mime, place = excluded.place

-- name: enter_content
-- The result of an audit stays.
insert into inventory_content (ark, place, size, sha256) values (:ark, :place, :size, :sha256) on conflict (ark, place) do nothing

-- name: correct_content
insert into inventory_content (ark, place, size, sha256) values (:ark, :place, :size, :sha256)
on conflict (ark, place) do update set size = excluded.size, sha256 = excluded.sha256, audited = '', result = ''
where inventory_content.size <> excluded.size or inventory_content.sha256 <> excluded.sha256

-- name: files
select path, size, sha256, mime, place from inventory_file
where ark = :ark and number = :number and path > :after order by path limit :row_limit

-- name: checked_files
-- Content in another storage service has no row of its own, and was never audited here.
select f.path, f.size, f.sha256, f.mime, f.place, coalesce(c.audited, '') as audited, coalesce(c.result, '') as result
from inventory_file f left join inventory_content c on c.ark = f.ark and c.place = f.place
where f.ark = :ark and f.number = :number and f.path > :after order by f.path limit :row_limit

-- name: file
select path, size, sha256, mime, place from inventory_file where ark = :ark and number = :number and path = :path

-- name: forget_version
delete from inventory_version where ark = :ark and number = :number

-- name: forget_files
delete from inventory_file where ark = :ark and number = :number and path in (
    select path from inventory_file where ark = :ark and number = :number order by path limit :row_limit)

-- name: move_files
-- The new files of a version that is replaced, which were inserted under the negative number.
update inventory_file set number = :number where ark = :ark and number = :replacement

-- name: forget_replacements
-- The files of a replacement that was interrupted.
delete from inventory_file where ark = :ark and number < 0 and (number, path) in (
    select number, path from inventory_file where ark = :ark and number < 0 limit :row_limit)

-- name: forget_contents
-- Content that no version refers to and that is not the manifest of one.
delete from inventory_content where ark = :ark and place in (
    select c.place from inventory_content c where c.ark = :ark
    and not exists (select 1 from inventory_file f where f.ark = c.ark and f.place = c.place)
    and not exists (select 1 from inventory_version v where v.ark = c.ark and v.place = c.place)
    order by c.place limit :row_limit)

-- name: forget_object
delete from inventory_object where ark = :ark

-- name: enter_localid
insert into inventory_localid (owner, localid, ark) values (:owner, :localid, :ark) on conflict (owner, localid) do nothing

-- name: localid
select ark from inventory_localid where owner = :owner and localid = :localid

-- name: localids
select owner, localid from inventory_localid where ark = :ark order by owner, localid limit :row_limit

-- name: forget_localid
delete from inventory_localid where owner = :owner and localid = :localid and ark = :ark

-- name: forget_localids
delete from inventory_localid where ark = :ark

-- name: enter_member
insert into inventory_member (collection, ark) values (:collection, :ark) on conflict (collection, ark) do nothing

-- name: members
select collection from inventory_member where ark = :ark order by collection limit :row_limit

-- name: forget_members
delete from inventory_member where ark = :ark

-- name: enter_word
insert into inventory_word (word, ark) values (:word, :ark) on conflict (word, ark) do nothing

-- name: forget_words
delete from inventory_word where ark = :ark

-- name: search
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo from inventory_object o
where o.ark > :after
order by o.ark limit :row_limit

-- name: search_owner
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo from inventory_object o
where o.owner = :owner and o.ark > :after
order by o.ark limit :row_limit

-- name: search_localid
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo
from inventory_localid l join inventory_object o on o.ark = l.ark
where l.localid = :localid and l.ark > :after and (:owner = '' or l.owner = :owner)
order by l.ark limit :row_limit

-- name: search_collection
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo
from inventory_member m join inventory_object o on o.ark = m.ark
where m.collection = :collection and m.ark > :after and (:owner = '' or o.owner = :owner)
order by m.ark limit :row_limit

-- name: search_word
-- The first word selects objects, the others (empty if there are fewer) are looked up for each of them.
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo
from inventory_word w join inventory_object o on o.ark = w.ark
where w.word = :word1 and w.ark > :after and (:owner = '' or o.owner = :owner)
  and (:collection = '' or exists (select 1 from inventory_member m where m.collection = :collection and m.ark = w.ark))
  and (:word2 = '' or exists (select 1 from inventory_word x where x.word = :word2 and x.ark = w.ark))
  and (:word3 = '' or exists (select 1 from inventory_word x where x.word = :word3 and x.ark = w.ark))
  and (:word4 = '' or exists (select 1 from inventory_word x where x.word = :word4 and x.ark = w.ark))
order by w.ark limit :row_limit

-- name: list_due_audits
select ark, place, size, sha256, audited from inventory_content
where audited < :before order by audited, ark, place limit :row_limit

-- name: record_audit
-- Only for the content that was read: a version that was recorded again meanwhile may have changed its SHA-256.
update inventory_content set audited = :audited, result = :result where ark = :ark and place = :place and sha256 = :sha256

-- name: record_damage
update inventory_content set audited = :audited, result = :result where ark = :ark and place = :place

-- name: list_damaged
select ark, place, size, sha256, audited, result from inventory_content
where result <> '' and (ark > :after_ark or (ark = :after_ark and place > :after_place))
order by ark, place limit :row_limit

-- name: list_damaged_of
select ark, place, size, sha256, audited, result from inventory_content where ark = :ark and result <> '' order by place limit :row_limit

-- name: paths_of
select number, path from inventory_file where ark = :ark and place = :place and number > 0 order by number desc, path limit :row_limit

-- name: clear_files
delete from inventory_file where (ark, number, path) in (select ark, number, path from inventory_file limit :row_limit)

-- name: clear_contents
delete from inventory_content where (ark, place) in (select ark, place from inventory_content limit :row_limit)

-- name: clear_versions
delete from inventory_version where (ark, number) in (select ark, number from inventory_version limit :row_limit)

-- name: clear_localids
delete from inventory_localid where (owner, localid) in (select owner, localid from inventory_localid limit :row_limit)

-- name: clear_members
delete from inventory_member where (collection, ark) in (select collection, ark from inventory_member limit :row_limit)

-- name: clear_words
delete from inventory_word where (word, ark) in (select word, ark from inventory_word limit :row_limit)

-- name: clear_objects
delete from inventory_object where ark in (select ark from inventory_object limit :row_limit)

-- name: identity
select id, epoch, problem from inventory_identity where name = 'inventory'

-- name: enter_identity
insert into inventory_identity (name, id, epoch, problem) values ('inventory', :id, 0, '') on conflict (name) do nothing

-- name: set_identity
update inventory_identity set id = :id, epoch = :epoch, problem = '' where name = 'inventory'

-- name: set_problem
update inventory_identity set problem = :problem where name = 'inventory'

-- name: raise_epoch
update inventory_identity set epoch = epoch + 1 where name = 'inventory'
