-- The statements of the inventory. Every list is a page: in order of its key, after the last one of the page before.

-- name: version
select ark, number, request, created, place, sha256, size, files, bytes from inventory_version where ark = :ark and number = :number

-- name: versions
select ark, number, request, created, place, sha256, size, files, bytes from inventory_version
where ark = :ark and number > :after order by number limit :portion

-- name: head
select place from inventory_version where ark = :ark order by number desc limit 1

-- name: object
select ark, owner, head, title, creator, date, created, modified, embargo from inventory_object where ark = :ark

-- name: enter_object
-- A version that is older than the newest one changes nothing of what is said about the object. One that names no owner takes nobody's
-- object away: whoever came next would be its owner.
insert into inventory_object (ark, owner, head, title, creator, date, created, modified, embargo)
values (:ark, :owner, :number, :title, :creator, :date, :created, :created, :embargo)
on conflict (ark) do update set
    owner = case when excluded.owner = '' then inventory_object.owner else excluded.owner end,
    head = excluded.head, title = excluded.title, creator = excluded.creator, date = excluded.date, modified = excluded.modified,
    embargo = excluded.embargo
where excluded.head >= inventory_object.head

-- name: lower_head
-- Only the storage knows which version is the newest; but one that is recorded was not unknown to it.
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
-- What was audited stays audited.
insert into inventory_content (ark, place, size, sha256) values (:ark, :place, :size, :sha256) on conflict (ark, place) do nothing

-- name: correct_content
insert into inventory_content (ark, place, size, sha256) values (:ark, :place, :size, :sha256)
on conflict (ark, place) do update set size = excluded.size, sha256 = excluded.sha256, audited = '', result = ''
where inventory_content.size <> excluded.size or inventory_content.sha256 <> excluded.sha256

-- name: files
select path, size, sha256, mime, place from inventory_file
where ark = :ark and number = :number and path > :after order by path limit :portion

-- name: file
select path, size, sha256, mime, place from inventory_file where ark = :ark and number = :number and path = :path

-- name: forget_version
delete from inventory_version where ark = :ark and number = :number

-- name: forget_files
delete from inventory_file where ark = :ark and number = :number and path in (
    select path from inventory_file where ark = :ark and number = :number order by path limit :portion)

-- name: move_files
-- The files of a version that were entered beside the one that they replace.
update inventory_file set number = :number where ark = :ark and number = :beside

-- name: forget_beside
-- What a replacement that was broken off has left.
delete from inventory_file where ark = :ark and number < 0 and (number, path) in (
    select number, path from inventory_file where ark = :ark and number < 0 limit :portion)

-- name: forget_contents
-- Content that no version refers to and that is no manifest of one.
delete from inventory_content where ark = :ark and place in (
    select c.place from inventory_content c where c.ark = :ark
    and not exists (select 1 from inventory_file f where f.ark = c.ark and f.place = c.place)
    and not exists (select 1 from inventory_version v where v.ark = c.ark and v.place = c.place)
    order by c.place limit :portion)

-- name: forget_object
delete from inventory_object where ark = :ark

-- name: enter_localid
insert into inventory_localid (owner, localid, ark) values (:owner, :localid, :ark) on conflict (owner, localid) do nothing

-- name: localid
select ark from inventory_localid where owner = :owner and localid = :localid

-- name: localids
select owner, localid from inventory_localid where ark = :ark order by owner, localid limit :portion

-- name: forget_localid
delete from inventory_localid where owner = :owner and localid = :localid and ark = :ark

-- name: forget_localids
delete from inventory_localid where ark = :ark

-- name: enter_member
insert into inventory_member (collection, ark) values (:collection, :ark) on conflict (collection, ark) do nothing

-- name: members
select collection from inventory_member where ark = :ark order by collection limit :portion

-- name: forget_members
delete from inventory_member where ark = :ark

-- name: enter_word
insert into inventory_word (word, ark) values (:word, :ark) on conflict (word, ark) do nothing

-- name: forget_words
delete from inventory_word where ark = :ark

-- name: search
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo from inventory_object o
where o.ark > :after
order by o.ark limit :portion

-- name: search_owner
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo from inventory_object o
where o.owner = :owner and o.ark > :after
order by o.ark limit :portion

-- name: search_localid
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo
from inventory_localid l join inventory_object o on o.ark = l.ark
where l.localid = :localid and l.ark > :after and (:owner = '' or l.owner = :owner)
order by l.ark limit :portion

-- name: search_collection
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo
from inventory_member m join inventory_object o on o.ark = m.ark
where m.collection = :collection and m.ark > :after and (:owner = '' or o.owner = :owner)
order by m.ark limit :portion

-- name: search_word
-- The first word leads, the others (empty if there are fewer) are looked up for each object that it finds.
select o.ark, o.owner, o.head, o.title, o.creator, o.date, o.created, o.modified, o.embargo
from inventory_word w join inventory_object o on o.ark = w.ark
where w.word = :word1 and w.ark > :after and (:owner = '' or o.owner = :owner)
  and (:collection = '' or exists (select 1 from inventory_member m where m.collection = :collection and m.ark = w.ark))
  and (:word2 = '' or exists (select 1 from inventory_word x where x.word = :word2 and x.ark = w.ark))
  and (:word3 = '' or exists (select 1 from inventory_word x where x.word = :word3 and x.ark = w.ark))
  and (:word4 = '' or exists (select 1 from inventory_word x where x.word = :word4 and x.ark = w.ark))
order by w.ark limit :portion

-- name: to_audit
select ark, place, size, sha256, audited from inventory_content
where audited < :before order by audited, ark, place limit :portion

-- name: audited
-- Only for the bytes that were read: a version that was recorded again meanwhile may have changed what they should be.
update inventory_content set audited = :audited, result = :result where ark = :ark and place = :place and sha256 = :sha256

-- name: found_damaged
update inventory_content set audited = :audited, result = :result where ark = :ark and place = :place

-- name: damaged
select ark, place, size, sha256, audited, result from inventory_content
where result <> '' and (ark > :after_ark or (ark = :after_ark and place > :after_place))
order by ark, place limit :portion

-- name: damaged_of
select ark, place, size, sha256, audited, result from inventory_content where ark = :ark and result <> '' order by place limit :portion

-- name: paths_of
select number, path from inventory_file where ark = :ark and place = :place and number > 0 order by number desc, path limit :portion

-- name: clear_files
delete from inventory_file where (ark, number, path) in (select ark, number, path from inventory_file limit :portion)

-- name: clear_contents
delete from inventory_content where (ark, place) in (select ark, place from inventory_content limit :portion)

-- name: clear_versions
delete from inventory_version where (ark, number) in (select ark, number from inventory_version limit :portion)

-- name: clear_localids
delete from inventory_localid where (owner, localid) in (select owner, localid from inventory_localid limit :portion)

-- name: clear_members
delete from inventory_member where (collection, ark) in (select collection, ark from inventory_member limit :portion)

-- name: clear_words
delete from inventory_word where (word, ark) in (select word, ark from inventory_word limit :portion)

-- name: clear_objects
delete from inventory_object where ark in (select ark from inventory_object limit :portion)
