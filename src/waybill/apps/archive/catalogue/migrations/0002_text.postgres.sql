-- Paths are compared by their bytes, so that what lies below a folder is one range; and are found by any part of them.

alter table archive_file alter column path type text collate "C";
alter table archive_file alter column name type text collate "C";
alter table archive_livepath alter column path type text collate "C";
create index archive_file_text on archive_file using gin (trigrams(path));
