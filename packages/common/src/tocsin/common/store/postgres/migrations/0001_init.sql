-- The first schema. A run's state is the table it is in: pending, running, history; rows move.

create table tenants (
    id uuid primary key,
    name text not null unique check (length(name) between 1 and 200),
    shard integer not null,
    move_to integer,                       -- asked for by the Supervisor, carried out by the shard's owner
    weight double precision not null default 1 check (weight > 0),
    max_in_flight integer not null default 1000 check (max_in_flight > 0),
    max_in_flight_per_endpoint integer check (max_in_flight_per_endpoint > 0),
    signing_secrets text[] not null default '{}',
    created_at timestamptz not null default now()
);
create index tenants_shard on tenants (shard);
create index tenants_move on tenants (shard) where move_to is not null;

create table api_keys (
    id uuid primary key,
    tenant_id uuid not null references tenants,
    name text not null,
    hash bytea not null unique,            -- SHA-256 of a 256-bit random secret: nothing to guess, nothing to salt
    created_at timestamptz not null default now(),
    revoked_at timestamptz
);
create index api_keys_tenant on api_keys (tenant_id);

create table tasks (
    id uuid not null,
    tenant_id uuid not null references tenants,
    name text not null,
    state text not null default 'active' check (state in ('active', 'paused', 'faulty', 'deleted')),
    version integer not null default 1,
    plan_version integer not null default 1,
    plan jsonb not null,
    call jsonb not null,
    body bytea,
    fault text,
    created_at timestamptz not null default now(),
    updated_at timestamptz not null default now(),
    primary key (id) include (version, state) -- all that a begin reads of a task, so that it reads no page of the table
);
create index tasks_tenant on tasks (tenant_id, id) where state <> 'deleted';
create index tasks_zoned on tasks (id) where state = 'active' and plan -> 'schedule' ->> 'zone' <> 'UTC';

create table idempotency_keys (
    tenant_id uuid not null references tenants,
    key text not null,
    request_hash bytea not null,
    task_id uuid not null,
    created_at timestamptz not null default now(),
    primary key (tenant_id, key)
);
create index idempotency_keys_age on idempotency_keys (created_at);

create table audit (
    id uuid primary key,
    at timestamptz not null default now(),
    tenant_id uuid,
    actor text not null,
    action text not null,
    target uuid,
    detail jsonb not null default '{}'
);
create index audit_tenant on audit (tenant_id, id);

create table placements (
    cell text primary key,
    executors integer not null check (executors >= 0),
    tenant_id uuid references tenants,     -- null: shared
    closing boolean not null default false,
    generation integer not null default 0
);

create table leases (
    id uuid primary key,
    cell text not null,
    generation integer not null,
    node text not null,
    boot text not null,
    pid_namespace text not null,
    pid integer not null,
    process_started double precision not null,
    zone_data text not null,
    ttl interval not null,
    started_at timestamptz not null default clock_timestamp(),
    heartbeat_at timestamptz not null default clock_timestamp(),
    steady_since timestamptz not null default clock_timestamp(),
    expired_at timestamptz,
    draining boolean not null default false
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

create table shards (
    shard integer primary key,
    cell text not null references placements,
    tenant_id uuid references tenants,     -- null: every tenant whose row names this shard
    lane_first integer not null default 0,
    lane_last integer not null default 1024,
    owner uuid,                            -- a lease; not a foreign key, leases are removed
    check (lane_first < lane_last)
) with (fillfactor = 50);
create index shards_owner on shards (owner);
create index shards_cell on shards (cell);

-- One row: the release of zone data that next rows are planned by. '': several may have planned, or none yet.
create table zone_data (
    one boolean primary key default true check (one),
    release text not null default '',
    through uuid                           -- the last task that was looked at by it; null: all were
);

create table pending (
    run_id uuid primary key,
    tenant_id uuid not null,
    task_id uuid not null,
    due_at timestamptz not null,
    slot timestamptz,
    last_slot timestamptz,
    fence integer not null default 0,
    plan_version integer not null,
    priority smallint not null check (priority between 0 and 3),
    lane smallint not null,
    losses integer not null default 0,
    kind text not null check (kind in ('next', 'slot', 'now', 'backfill', 'catchup', 'redrive', 'forced')),
    check (kind <> 'next' or fence = 0),   -- what comes back from a begin is never a next row
    check (due_at = 'infinity' or kind <> 'next' or slot is not null)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 50000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
create index pending_queue on pending (tenant_id, priority, due_at, run_id);
create index pending_task on pending (task_id);

create table running (
    run_id uuid not null,                  -- unique: a row gets here only by leaving pending
    tenant_id uuid not null,
    task_id uuid not null,
    lease_id uuid not null,
    due_at timestamptz not null,
    slot timestamptz,
    last_slot timestamptz,
    begun_at timestamptz not null default clock_timestamp(),
    fence integer not null check (fence > 0),
    version integer not null,
    plan_version integer not null,
    priority smallint not null,
    lane smallint not null,
    losses integer not null,
    kind text not null check (kind <> 'next'),
    cancelled boolean not null default false,
    primary key (lease_id, run_id)         -- who looks for a run by its id alone asks each lease (ADR 0012)
) with (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000,
    autovacuum_vacuum_cost_delay = 0, vacuum_truncate = off
);
create index running_task on running (task_id);

-- One row per ended attempt, the last one with the run's terminal state; or one row per skip.
create table history (
    run_id uuid not null,
    tenant_id uuid not null,
    task_id uuid not null,
    ended_at timestamptz not null,
    due_at timestamptz,
    slot timestamptz,                      -- of a skip: its first slot
    last_slot timestamptz,                 -- the slot before `slot`: the chain that shows gaps
    started_at timestamptz,
    until_slot timestamptz,                -- of a skip: its last slot
    skip_count integer,
    fence integer not null,
    losses integer not null,
    http_status smallint,
    sent boolean not null,
    stale boolean not null default false,
    skip_exact boolean,
    kind text not null,
    state text check (state in ('succeeded', 'dead', 'cancelled', 'skipped')),
    outcome text not null,
    reason text,
    error text,
    response bytea,
    lease_id uuid,
    primary key (run_id, fence, ended_at),
    check ((state is not distinct from 'skipped') = (outcome = 'skipped')),
    check (not (stale and state is not null))
) partition by range (ended_at);
create index history_task on history (task_id, run_id, fence);
create table history_default partition of history default;

-- The state of runs in one statement, for people: never read it table by table. Ask by task_id; by run_id alone it reads
-- all of running, where the statements of `run_get` and `run_find` ask each lease.
create view runs as
    select run_id, tenant_id, task_id, 'pending' as state, kind, slot, last_slot, due_at, fence, losses,
           priority, null::uuid as lease_id, null::timestamptz as ended_at, false as cancelled
      from pending
    union all
    select run_id, tenant_id, task_id, 'running', kind, slot, last_slot, due_at, fence, losses,
           priority, lease_id, null, cancelled
      from running
    union all
    select run_id, tenant_id, task_id, state, kind, slot, last_slot, due_at, fence, losses,
           null, lease_id, ended_at, false
      from history where state is not null;

insert into zone_data default values;
insert into placements (cell, executors) values ('shared', 1);
insert into shards (shard, cell) select s, 'shared' from generate_series(0, 63) s;
