-- Until when the files of an object are not to be shown; empty: they are. What was recorded before is recorded again by `rebuild --all`.

alter table inventory_object add column embargo text not null default '';
