create table loaded_file (path text not null primary key, size bigint not null, sha256 text not null)
