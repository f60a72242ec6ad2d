-- name: dialect
select 'postgres'::text as name
