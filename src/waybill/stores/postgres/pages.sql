-- Pages of records in creation order, one statement for each filter that find allows; {direction} and {beyond} are "asc" and ">" or "desc"
-- and "<". Each scans its own index from the last seq seen and reads no more than a page; the condition that is always true selects the index.

-- name: kind
select {columns} from record r
where r.kind = %(kind)s and r.seq {beyond} %(after)s and r.seq > 0
order by r.seq {direction} limit %(limit)s;

-- name: state
select {columns} from record r
where r.state = %(value)s and r.kind = %(kind)s and r.seq {beyond} %(after)s and r.created >= 0
order by r.seq {direction} limit %(limit)s;

-- name: owner
select {columns} from record r
where r.owner = %(value)s and r.kind = %(kind)s and r.seq {beyond} %(after)s and r.owner <> ''
order by r.seq {direction} limit %(limit)s;

-- name: no_owner
-- Without an index of its own: where records without an owner exist, most records have none.
select {columns} from record r
where r.kind = %(kind)s and r.owner = '' and r.seq {beyond} %(after)s and r.seq > 0
order by r.seq {direction} limit %(limit)s;

-- name: parent
select {columns} from record r
where r.parent_id = %(value)s and r.parent_kind = %(parent_kind)s and r.kind = %(kind)s and r.seq {beyond} %(after)s and r.id <> ''
order by r.seq {direction} limit %(limit)s;

-- name: seen
-- What somebody may see, with or without a state: each owner and each scope through its index, merged.
select {columns}
from (select t.id, t.seq
      from (select s.id, s.seq from unnest(%(owners)s::text[]) o(name)
            cross join lateral (
                select r.id, r.seq from record r
                where r.owner = o.name and r.kind = %(kind)s and r.seq {beyond} %(after)s and r.owner <> ''
                  and (%(state)s::text is null or r.state = %(state)s)
                order by r.seq {direction} limit %(limit)s) s
            union
            select s.id, s.seq from unnest(%(scopes)s::text[]) o(name)
            cross join lateral (
                select r.id, r.seq from record r
                where r.scope = o.name and r.kind = %(kind)s and r.seq {beyond} %(after)s and r.scope <> ''
                  and (%(state)s::text is null or r.state = %(state)s)
                order by r.seq {direction} limit %(limit)s) s) t
      order by t.seq {direction} limit %(limit)s) v
join record r on r.id = v.id and r.kind = %(kind)s
order by v.seq {direction};
