create table photolab_photo (id text not null primary key, caption text not null);
