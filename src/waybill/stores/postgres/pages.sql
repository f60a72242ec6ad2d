-- Pages of records in creation order, one statement for each filter that find allows; {direction} and {beyond} are "asc" and ">" or "desc"
-- and "<". Each walks its own index from the last seq seen and reads no more than a page; the condition that is always true names the index.

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
-- Not by an index of its own: who has records without an owner mostly has no others.
select {columns} from record r
where r.kind = %(kind)s and r.owner = '' and r.seq {beyond} %(after)s and r.seq > 0
order by r.seq {direction} limit %(limit)s;

-- name: parent
select {columns} from record r
where r.parent_id = %(value)s and r.parent_kind = %(parent_kind)s and r.kind = %(kind)s and r.seq {beyond} %(after)s and r.id <> ''
order by r.seq {direction} limit %(limit)s;
