-- The statements of the catalogue of lots. Lists are pages: in the order of their key, after the last row of the page before.

-- name: newest_lot
select generation, state, manifest, producer, published, count, bytes from lots_lot
where dataset = :dataset and minute = :minute order by generation desc limit 1

-- name: lot_generation
select generation, state, manifest, producer, published, count, bytes from lots_lot
where dataset = :dataset and minute = :minute and generation = :generation

-- name: lot_generations
select generation, state, manifest, producer, published, count, bytes from lots_lot
where dataset = :dataset and minute = :minute and generation < :before order by generation desc limit :row_limit

-- name: lot_by_producer
select generation from lots_lot where dataset = :dataset and minute = :minute and producer = :producer

-- name: newest_lots
-- Of an interval: for roll-ups and barriers.
select l.minute, l.generation, l.state, l.manifest, l.count, l.bytes from lots_lot l
where l.dataset = :dataset and l.minute >= :first and l.minute < :after
and not exists (select 1 from lots_lot n where n.dataset = l.dataset and n.minute = l.minute and n.generation > l.generation)
order by l.minute limit :row_limit

-- name: enter_lot
insert into lots_lot (dataset, minute, generation, state, manifest, producer, published, count, bytes)
values (:dataset, :minute, :generation, :state, :manifest, :producer, :published, :count, :bytes)

-- name: mark_lot
update lots_lot set state = :state, manifest = :manifest where dataset = :dataset and minute = :minute and generation = :generation

-- name: newest_run
select generation, source_key, state, sources, changed, message from lots_run
where arc = :arc and minute = :minute order by generation desc limit 1

-- name: run
select generation, source_key, state, sources, changed, message from lots_run
where arc = :arc and minute = :minute and generation = :generation

-- name: runs
select generation, source_key, state, sources, changed, message from lots_run
where arc = :arc and minute = :minute and generation < :before order by generation desc limit :row_limit

-- name: enter_run
insert into lots_run (arc, minute, generation, source_key, state, sources, changed, message)
values (:arc, :minute, :generation, :source_key, 'waiting', '{}', :changed, '')

-- name: raise_source_key
-- A run that has not begun takes in what its sources have become meanwhile.
update lots_run set source_key = :source_key where arc = :arc and minute = :minute and generation = :generation and state = 'waiting'

-- name: begin_run
-- Only if no source has published since its generations were read.
update lots_run set state = 'running', sources = :sources, changed = :changed, message = ''
where arc = :arc and minute = :minute and generation = :generation and state <> 'complete' and source_key < :key_limit

-- name: change_run
update lots_run set state = :state, sources = :sources, changed = :changed, message = :message
where arc = :arc and minute = :minute and generation = :generation

-- name: enter_arrival
-- What arrives again with other bytes is new; what arrives again as it was is not, in whatever interval.
insert into lots_arrival (dataset, minute, uri, size, sha256, modified, arrived, generation, version)
select cast(:dataset as text), cast(:minute as bigint), cast(:uri as text), cast(:size as bigint), cast(:sha256 as text),
    cast(:modified as text), cast(:arrived as text), 0, 1
where not exists (
    select 1 from lots_arrival k where k.dataset = :dataset and k.uri = :uri and k.size is not distinct from cast(:size as bigint)
    and k.sha256 is not distinct from cast(:sha256 as text) and k.modified is not distinct from cast(:modified as text))
on conflict (dataset, minute, uri) do update set
    size = excluded.size, sha256 = excluded.sha256, modified = excluded.modified, arrived = excluded.arrived, generation = 0,
    version = lots_arrival.version + 1

-- name: new_arrival_minutes
-- Which lots have arrivals that are in no manifest.
select distinct minute from lots_arrival where dataset = :dataset and generation = 0 and minute >= :first order by minute limit :row_limit

-- name: arrivals
select uri, size, sha256, modified, arrived, generation, version from lots_arrival
where dataset = :dataset and minute = :minute and uri > :after_uri order by uri limit :row_limit

-- name: settle_arrival
-- Only as the manifest has it: what came again with other bytes meanwhile stays new.
update lots_arrival set generation = :generation
where dataset = :dataset and minute = :minute and uri = :uri and generation = 0
and size is not distinct from cast(:size as bigint) and sha256 is not distinct from cast(:sha256 as text)
and modified is not distinct from cast(:modified as text)

-- name: is_arrival_pending
select 1 as found from lots_arrival where dataset = :dataset and generation = 0 and minute >= :first and minute < :after limit 1

-- name: days
select day, classes from lots_day where subject = :subject and day >= :first and day < :after order by day limit :row_limit

-- name: enter_day
insert into lots_day (subject, day, classes) values (:subject, :day, :classes) on conflict (subject, day) do nothing

-- name: change_class
update lots_day set classes = substr(classes, 1, :place) || :class_letter || substr(classes, :place + 2)
where subject = :subject and day = :day

-- name: overdue
select minute, told from lots_overdue where dataset = :dataset order by minute limit :row_limit

-- name: enter_overdue
insert into lots_overdue (dataset, minute, told) values (:dataset, :minute, :told) on conflict (dataset, minute) do nothing

-- name: remove_overdue
delete from lots_overdue where dataset = :dataset and minute = :minute

-- name: enter_origin
insert into lots_origin (origin, dataset, uri) values (:origin, :dataset, :uri) on conflict do nothing

-- name: lots_of_origin
-- The lots of a dataset in which objects of a thing arrived.
select distinct a.minute from lots_origin o join lots_arrival a on a.dataset = o.dataset and a.uri = o.uri
where o.origin = :origin and o.dataset = :dataset order by a.minute limit :row_limit

-- name: origins_of_lot
select distinct o.origin from lots_arrival a join lots_origin o on o.dataset = a.dataset and o.uri = a.uri
where a.dataset = :dataset and a.minute = :minute order by o.origin limit :row_limit

-- name: superseded
-- Generations that another one has replaced long enough ago, and whose data are there still.
select l.minute, l.generation, l.state, l.manifest from lots_lot l
where l.dataset = :dataset and l.state <> 'removed'
and exists (
    select 1 from lots_lot n
    where n.dataset = l.dataset and n.minute = l.minute and n.generation = l.generation + 1 and n.published < :before)
order by l.minute, l.generation limit :row_limit
