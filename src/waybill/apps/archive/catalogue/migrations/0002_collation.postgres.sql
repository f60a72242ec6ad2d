-- Paths are compared by their bytes, so that what lies below a folder is one range.

alter table archive_file alter column path type text collate "C";
alter table archive_file alter column name type text collate "C";
alter table archive_livepath alter column path type text collate "C";
