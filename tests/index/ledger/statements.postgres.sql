-- name: find
-- The index has the trigrams; the text itself is compared with what they find.
select id, title from ledger_entry
where trigrams(title) @> trigrams(:text) and strpos(lower(title), lower(:text)) > 0 order by id
