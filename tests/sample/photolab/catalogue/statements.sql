-- name: enter
insert into photolab_photo (id, caption) values (:id, :caption) on conflict (id) do update set caption = excluded.caption

-- name: find
select id, caption from photolab_photo where caption like '%' || :text || '%' order by id limit 100

-- name: clear_some
delete from photolab_photo where id in (select id from photolab_photo limit :n)
