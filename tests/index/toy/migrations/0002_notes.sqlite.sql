create table toy_note (id integer primary key, words text) strict
