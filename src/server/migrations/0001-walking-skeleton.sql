-- The server's tables. There is no tenant id anywhere: a server belongs to one vendor.

create table apps (
  id         text primary key,
  name       text not null unique,
  created_at timestamptz not null default now()
);

-- What a vendor described, numbered and never changed.
create table app_configs (
  app_id     text not null references apps,
  number     int not null,
  config     jsonb not null,
  digest     text not null,
  created_at timestamptz not null default now(),
  primary key (app_id, number)
);

-- Every operation. `state` is written by server/job-machine.ts alone.
create table jobs (
  id               text primary key,
  queue            text not null,               -- 'build', or the install's id
  operation        text not null
                   check (operation in ('provision', 'build', 'sync', 'plan', 'apply', 'destroy')),
  app_id           text not null references apps,
  install_id       text,
  component        text,                        -- null: the install's sandbox
  state            text not null default 'queued'
                   check (state in ('queued', 'offered', 'running', 'unreachable',
                                    'succeeded', 'failed', 'cancelled')),
  priority         int not null default 0,
  manifest         text not null,               -- the signed document, written once
  manifest_digest  text not null,
  fingerprint      text,                        -- what the deploy makes of the component
  artifact_digest  text,                        -- what it syncs, plans, applies or destroys
  deploy           int not null default 0,      -- the install's deploy number when the job was made
  generation       int not null default 1,
  n                int not null default 0,      -- (generation, n) is the epoch; n rises with every offer
  losses           int not null default 0,      -- how often its executor vanished without an outcome
  attempts_max     int not null default 3,
  agent_id         text,
  lease_expires_at timestamptz,
  cancel_requested_at timestamptz,
  not_before       timestamptz not null default now(),
  created_at       timestamptz not null default now(),
  started_at       timestamptz,
  finished_at      timestamptz,
  outcome          jsonb,

  -- A job has an owner exactly while an agent may be running it.
  check ((state in ('offered', 'running', 'unreachable')) = (agent_id is not null)),
  check ((agent_id is null) = (lease_expires_at is null)),
  -- A job has an outcome exactly when it has ended, and then for ever.
  check ((state in ('succeeded', 'failed', 'cancelled')) = (outcome is not null)),
  check ((outcome is null) = (finished_at is null))
);

-- Claiming, oldest first within a priority.
create index jobs_queued on jobs (queue, priority desc, created_at, id) where state = 'queued';
create index jobs_leased on jobs (lease_expires_at) where state in ('offered', 'running');
create index jobs_of_agent on jobs (agent_id) where agent_id is not null;
create index jobs_of_install on jobs (install_id, created_at desc);
create index jobs_of_deploy on jobs (install_id, deploy, component);
create index jobs_by_age on jobs (created_at desc, id);

-- Whoever reconciles, and however often: one unfinished job per install and component.
create unique index jobs_one_unfinished on jobs (install_id, coalesce(component, ''))
  where install_id is not null and state not in ('succeeded', 'failed', 'cancelled');

-- One build per component and inputs; a failed one may be tried again.
create table builds (
  id            text primary key,
  app_id        text not null references apps,
  component     text not null,
  config_number int not null,
  inputs_digest text not null,                  -- type, build configuration, source
  source_digest text,
  job_id        text not null references jobs,
  state         text not null default 'running' check (state in ('running', 'succeeded', 'failed')),
  artifact      jsonb,                          -- { repository, digest, sizeBytes }
  created_at    timestamptz not null default now(),
  check ((state = 'succeeded') = (artifact is not null))
);
create unique index builds_one_per_inputs on builds (app_id, component, inputs_digest)
  where state <> 'failed';
create index builds_of_job on builds (job_id);

-- Which build gives each component of a configuration. A failed build is replaced by the next try.
create table config_builds (
  app_id        text not null,
  config_number int not null,
  component     text not null,
  build_id      text not null references builds,
  primary key (app_id, config_number, component),
  foreign key (app_id, config_number) references app_configs (app_id, number)
);
create index config_builds_of_build on config_builds (build_id);

-- Exact digests of every component, one number.
create table releases (
  id            text primary key,
  app_id        text not null references apps,
  number        int not null,
  config_number int not null,
  components    jsonb not null,                 -- name -> { buildId, artifact }
  created_at    timestamptz not null default now(),
  unique (app_id, number),
  unique (app_id, config_number),
  foreign key (app_id, config_number) references app_configs (app_id, number)
);

create table installs (
  id                text primary key,
  app_id            text not null references apps,
  name              text not null,
  state             text not null default 'provisioning'
                    check (state in ('provisioning', 'active', 'deleting', 'deleted')),
  sandbox_type      text not null,
  sandbox           jsonb,                      -- outputs and hash of the sandbox, once provisioned
  inputs            jsonb not null default '{}',
  release_id        text references releases,   -- the desired release; null until there is one
  deploy            int not null default 1,     -- rises with every deploy a person asks for
  generation        int not null default 1,
  reconcile_due_at  timestamptz default now(),  -- null: nothing has changed since the last reconcile
  created_at        timestamptz not null default now(),
  deleted_at        timestamptz,
  check ((state = 'deleted') = (deleted_at is not null))
);
create unique index installs_name on installs (name) where state <> 'deleted';
create index installs_due on installs (reconcile_due_at) where reconcile_due_at is not null;
create index installs_of_app on installs (app_id);

alter table jobs add foreign key (install_id) references installs;

-- What is deployed, per component. Sensitive outputs are here as keyed hashes only.
create table install_components (
  install_id   text not null references installs,
  component    text not null,
  type         text not null,
  config       jsonb not null,                  -- as last applied, so that it can be destroyed
  dependencies text[] not null default '{}',
  artifact     jsonb not null,
  fingerprint  text not null,
  outputs      jsonb not null default '{}',
  outputs_hash text not null,
  release_id   text references releases,
  applied_at   timestamptz not null default now(),
  primary key (install_id, component)
);

-- What the install's own registry holds.
create table install_artifacts (
  install_id text not null references installs,
  digest     text not null,
  repository text not null,
  synced_at  timestamptz not null default now(),
  primary key (install_id, digest, repository)
);

-- An approval names the digest of {plan, the diff a person saw, the base}.
create table approvals (
  job_id          text primary key references jobs,   -- the plan job
  install_id      text not null references installs,
  component       text not null,
  approval_digest text not null,
  plan_digest     text not null,
  approved_by     text not null,
  approved_at     timestamptz not null default now()
);

create table agents (
  id                text primary key,
  role              text not null check (role in ('build', 'install')),
  install_id        text references installs,
  public_key        text not null unique,
  generation        int not null default 1,
  connection        text,                        -- the newest connection wins
  server            text,                        -- the server process that holds it
  connected_at      timestamptz,
  seen_at           timestamptz,
  revoked_at        timestamptz,
  created_at        timestamptz not null default now(),
  check ((role = 'install') = (install_id is not null)),
  check ((connection is null) = (connected_at is null))
);
-- One agent per install, never shared.
create unique index agents_one_per_install on agents (install_id) where revoked_at is null and install_id is not null;

-- One-time codes, stored hashed.
create table enrolment_codes (
  hash       text primary key,
  role       text not null check (role in ('build', 'install')),
  install_id text references installs,
  expires_at timestamptz not null,
  used_at    timestamptz,
  agent_id   text references agents,
  created_at timestamptz not null default now(),
  check ((used_at is null) = (agent_id is null))
);

-- The server's keysets, signed by its root key. Private keys are not in the database.
create table keysets (
  number     int primary key,
  document   text not null,
  created_at timestamptz not null default now()
);

-- Tokens of people (and the browser's sessions), stored hashed.
create table tokens (
  id         text primary key,
  hash       text not null unique,
  kind       text not null check (kind in ('api', 'session')),
  name       text not null,
  expires_at timestamptz not null,
  created_at timestamptz not null default now(),
  revoked_at timestamptz
);

-- Uploaded sources, content in the blob store.
create table sources (
  digest     text primary key,
  size_bytes bigint not null,
  created_at timestamptz not null default now()
);

-- Where the lines of a job are. The blob is written before its row.
create table log_chunks (
  job_id     text not null references jobs,
  generation int not null,
  n          int not null,
  first_seq  int not null,
  last_seq   int not null,
  size_bytes int not null,
  created_at timestamptz not null default now(),
  primary key (job_id, generation, n, first_seq),
  check (last_seq >= first_seq)
);

-- The queue that the audit log seals: written by triggers or in the transaction of what it tells of.
create table events (
  id         bigint generated always as identity primary key,
  kind       text not null,                     -- 'job.running', 'artifact.copied', 'token.created', …
  actor      text not null,                     -- 'server', 'agent:agt_…', 'token:tok_…', 'enrolment'
  install_id text,
  job_id     text,
  component  text,
  data       jsonb not null default '{}',
  at         timestamptz not null default clock_timestamp()
);
create index events_of_job on events (job_id, id) where job_id is not null;
create index events_of_install on events (install_id, id) where install_id is not null;

-- Who acts in this transaction: the server sets `landfall.actor` locally; 'server' otherwise.
create function current_actor() returns text language sql stable as $$
  select coalesce(nullif(current_setting('landfall.actor', true), ''), 'server')
$$;

-- Every change of a job's state, once per statement: 20 % faster than once per row.
create function record_job_insert() returns trigger language plpgsql as $$
begin
  insert into events (kind, actor, install_id, job_id, component, data)
  select 'job.' || state, current_actor(), install_id, id, component,
         jsonb_build_object('operation', operation, 'manifest', manifest_digest, 'deploy', deploy)
  from new_rows;
  return null;
end $$;
create trigger job_inserted after insert on jobs
  referencing new table as new_rows for each statement execute function record_job_insert();

create function record_job_update() returns trigger language plpgsql as $$
begin
  insert into events (kind, actor, install_id, job_id, component, data)
  select 'job.' || new_rows.state, current_actor(), new_rows.install_id, new_rows.id, new_rows.component,
         jsonb_strip_nulls(jsonb_build_object(
           'operation', new_rows.operation, 'from', old_rows.state,
           'epoch', new_rows.generation || '.' || new_rows.n,
           'agent', coalesce(new_rows.agent_id, old_rows.agent_id),
           'code', new_rows.outcome ->> 'code', 'message', left(new_rows.outcome ->> 'message', 2000)))
  from new_rows join old_rows using (id)
  where new_rows.state is distinct from old_rows.state;

  -- Every artifact that came to be, and every one that was copied, with its bytes.
  insert into events (kind, actor, install_id, job_id, component, data)
  select 'artifact.built', current_actor(), new_rows.install_id, new_rows.id, new_rows.component,
         new_rows.outcome -> 'artifact'
  from new_rows join old_rows using (id)
  where old_rows.outcome is null and new_rows.outcome ? 'artifact';
  insert into events (kind, actor, install_id, job_id, component, data)
  select 'artifact.copied', current_actor(), new_rows.install_id, new_rows.id, new_rows.component, copied
  from new_rows join old_rows using (id), jsonb_array_elements(new_rows.outcome -> 'copied') as copied
  where old_rows.outcome is null and new_rows.outcome ? 'copied';

  -- An install whose job ended has something to reconcile, even if the server dies right here.
  update installs set reconcile_due_at = clock_timestamp()
  where id in (select new_rows.install_id from new_rows join old_rows using (id)
               where new_rows.outcome is not null and old_rows.outcome is null);
  return null;
end $$;
create trigger job_updated after update on jobs
  referencing old table as old_rows new table as new_rows
  for each statement execute function record_job_update();

-- A finished job never changes again.
create function refuse_change_of_finished_job() returns trigger language plpgsql as $$
begin
  raise exception 'Job % has ended as %; an ended job never changes.', old.id, old.state;
end $$;
create trigger finished_job_is_final before update on jobs
  for each row when (old.outcome is not null) execute function refuse_change_of_finished_job();

create function record_row() returns trigger language plpgsql as $$
declare
  what text := tg_argv[0];
begin
  if what = 'install' then
    if tg_op = 'UPDATE' and new.state = old.state and new.deploy = old.deploy
       and new.release_id is not distinct from old.release_id
       and new.generation = old.generation then return null; end if;
    insert into events (kind, actor, install_id, data)
    values (case when tg_op = 'INSERT' then 'install.created' else 'install.changed' end, current_actor(), new.id,
            jsonb_build_object('name', new.name, 'state', new.state, 'release', new.release_id,
                               'deploy', new.deploy, 'generation', new.generation));
  elsif what = 'agent' then
    if tg_op = 'UPDATE' and new.connection is not distinct from old.connection
       and new.revoked_at is not distinct from old.revoked_at then return null; end if;
    insert into events (kind, actor, install_id, data)
    values (case when tg_op = 'INSERT' then 'agent.enrolled'
                 when new.revoked_at is distinct from old.revoked_at then 'agent.revoked'
                 when new.connection is null then 'agent.disconnected'
                 else 'agent.connected' end,
            'agent:' || new.id, new.install_id,
            jsonb_build_object('agent', new.id, 'role', new.role, 'generation', new.generation));
  elsif what = 'token' then
    if tg_op = 'UPDATE' and new.revoked_at is not distinct from old.revoked_at then return null; end if;
    insert into events (kind, actor, data)
    values (case when tg_op = 'INSERT' then 'token.created' else 'token.revoked' end, current_actor(),
            jsonb_build_object('token', new.id, 'kind', new.kind, 'name', new.name, 'expires_at', new.expires_at));
  elsif what = 'code' then
    insert into events (kind, actor, install_id, data)
    values ('enrolment_code.created', current_actor(), new.install_id,
            jsonb_build_object('role', new.role, 'expires_at', new.expires_at));
  elsif what = 'approval' then
    insert into events (kind, actor, install_id, job_id, component, data)
    values ('plan.approved', new.approved_by, new.install_id, new.job_id, new.component,
            jsonb_build_object('approval', new.approval_digest, 'plan', new.plan_digest));
  elsif what = 'config' then
    insert into events (kind, actor, data)
    values ('app.synced', current_actor(),
            jsonb_build_object('app', new.app_id, 'number', new.number, 'digest', new.digest));
  elsif what = 'release' then
    insert into events (kind, actor, data)
    values ('release.created', current_actor(),
            jsonb_build_object('app', new.app_id, 'release', new.id, 'number', new.number));
  elsif what = 'keyset' then
    insert into events (kind, actor, data)
    values ('keyset.created', current_actor(), jsonb_build_object('number', new.number));
  end if;
  return null;
end $$;
create trigger install_recorded after insert or update on installs
  for each row execute function record_row('install');
create trigger agent_recorded after insert or update on agents
  for each row execute function record_row('agent');
create trigger token_recorded after insert or update on tokens
  for each row execute function record_row('token');
create trigger code_recorded after insert on enrolment_codes
  for each row execute function record_row('code');
create trigger approval_recorded after insert on approvals
  for each row execute function record_row('approval');
create trigger config_recorded after insert on app_configs
  for each row execute function record_row('config');
create trigger release_recorded after insert on releases
  for each row execute function record_row('release');
create trigger keyset_recorded after insert on keysets
  for each row execute function record_row('keyset');
