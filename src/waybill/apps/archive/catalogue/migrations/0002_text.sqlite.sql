-- Files are found by any part of their path. The rows come here some time after the migration is on storage, because entering a text takes
-- longer than sending a small file.

create virtual table archive_text using fts5 (path, content = 'archive_file', content_rowid = 'rowid', tokenize = 'trigram');
create table archive_untexted (
    migration bigint not null primary key,
    after_number bigint not null default 0 -- its files up to this one are entered
);
