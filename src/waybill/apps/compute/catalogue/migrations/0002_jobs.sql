-- Jobs, and the logs of keys that run through their phases. The log of phase 0 is the job's input, the log of phase n is what phase n-1 put
-- out, and the log after the last phase is the job's output. A segment is one object with some of the keys of a log.

create table compute_job (
    job text not null primary key,
    account text not null,
    name text not null,
    manifest text not null, -- JSON
    state text not null check (state in ('running', 'done')),
    created bigint not null, -- milliseconds, like all times here; 0: not yet
    last_input bigint not null,
    input_ended bigint not null default 0,
    cancelled bigint not null default 0,
    archive_started bigint not null default 0,
    done bigint not null default 0,
    archived bigint not null default 0,
    stats text not null default '' -- of an archived job, JSON
);
create index compute_job_state on compute_job (account, state, job);
create index compute_job_name on compute_job (account, name, job);
create index compute_job_idle on compute_job (last_input) where state = 'running' and input_ended = 0;

create table compute_log (
    job text not null references compute_job (job),
    phase integer not null,
    segments bigint not null default 0,
    keys bigint not null default 0,
    tasks bigint not null default 0, -- of the phase before that are done
    errors bigint not null default 0,
    retries bigint not null default 0,
    ended integer not null default 0, -- nothing more comes
    primary key (job, phase)
);

create table compute_segment (
    job text not null,
    phase integer not null,
    number bigint not null, -- the order in which they came, from 0
    source text not null, -- who wrote it: a second run writes it once
    object text not null,
    keys bigint not null,
    errors bigint not null,
    primary key (job, phase, number),
    unique (job, phase, source)
);

-- The last id that was given to a job, so that ids of one store increase whichever server gives them.
create table compute_lastjob (
    one integer not null primary key check (one = 1),
    job text not null
);
insert into compute_lastjob (one, job) values (1, '');
