create table toy_note (id bigint generated always as identity primary key, words text)
