-- The whole job machine: fair turns, limits, retries by policy; pauses, drains, replaced agents, restores.

alter table jobs
  add column party text generated always as (coalesce(install_id, app_id)) stored,
  -- Fair between parties of one queue: nobody's hundredth job goes before another's first.
  add column turn bigint not null default 0,
  add column start_by timestamptz,                            -- null: it may wait for ever
  add column retries int not null default 0,                  -- attempts that ended in a failure worth another
  add column retry_on text[] not null default '{lost}',       -- codes of such failures
  add column backoff_seconds real not null default 0.5,
  add column backoff_seconds_max real not null default 60,
  add column returned_reason text;                            -- why it went back to the queue the last time

drop index jobs_queued;
create index jobs_queued on jobs (queue, priority desc, turn, created_at, id) where state = 'queued';
create index jobs_turns on jobs (queue, party, priority, turn) where state = 'queued';
-- What is under way in a queue: counted against the install's limit with every offer.
create index jobs_held on jobs (queue) where agent_id is not null;
create index jobs_start_by on jobs (start_by) where state = 'queued' and start_by is not null;

alter table installs
  add column paused_at timestamptz,
  add column paused_by text,
  add column pause_reason text,
  add column jobs_max int check (jobs_max >= 1),              -- null: as many as its agent has slots
  -- Set when the server was restored from a back-up, until the install's agent has told what it did since.
  add column recall_since timestamptz,
  add check ((paused_at is null) = (paused_by is null)),
  add check ((paused_at is null) = (pause_reason is null));
create index installs_recall on installs (id) where recall_since is not null;

alter table agents
  add column draining_at timestamptz,
  add column drain_reason text,
  add column slots int,
  add column protocol int,
  add column hello_folder text,                 -- the last hello that was obeyed: of which folder,
  add column hello_number bigint,               -- and which one of it; an earlier one heard late is not
  add column version text,
  add check ((draining_at is null) = (drain_reason is null));
create index agents_of_install on agents (install_id, revoked_at) where install_id is not null;
create index agents_building on agents (created_at) where role = 'build' and revoked_at is null;

-- Each time that the server found itself restored from an older back-up.
create table restores (
  number int primary key,
  at     timestamptz not null default clock_timestamp(),
  found  text not null                          -- how it was noticed
);
-- The last restore that this agent has told its part of; less than the newest: it must still tell.
alter table agents add column restore int not null default 0;

create function record_restore() returns trigger language plpgsql as $$
begin
  insert into events (kind, actor, data)
  values ('server.restored', current_actor(), jsonb_build_object('number', new.number, 'found', new.found));
  return null;
end $$;
create trigger restore_recorded after insert on restores
  for each row execute function record_restore();

-- Heartbeats tell no story: only a changed connection or a revoked key is an event.
drop trigger agent_recorded on agents;
create trigger agent_recorded after insert or update of connection, revoked_at on agents
  for each row execute function record_row('agent');

-- The servers on this database; connections of one that was not seen for a while are cleared.
create table servers (
  id      text primary key,
  seen_at timestamptz not null
);
create index agents_of_server on agents (server) where connection is not null;

-- Cancels that wait for their agent: few, and asked for every second.
create index jobs_cancelling on jobs (agent_id) where agent_id is not null and cancel_requested_at is not null;

-- A value that an older epoch wanted to write into an install's store, and was refused.
create table conflicts (
  install_id text not null references installs,
  component  text not null,
  key        text not null,                     -- where in the install's store it is kept
  job_id     text,                              -- the job that told of it
  seen_at    timestamptz not null default clock_timestamp(),
  dismissed_at timestamptz,                     -- a person has looked; it stays in the install's store
  primary key (install_id, key)
);

-- What is seen of a checkpoint's event: enough to know that history is the same up to there.
create function event_mark(event events) returns text language sql stable as $$
  select encode(sha256(convert_to(
    concat_ws('/', event.id, event.kind, event.actor, event.job_id, extract(epoch from event.at)), 'UTF8')), 'hex')
$$;

-- A chunk of lines may share a blob with others: where in it. Null: a blob of its own, named by its key.
alter table log_chunks
  add column blob text,
  add column blob_offset int,
  add check ((blob is null) = (blob_offset is null));

create or replace function record_job_update() returns trigger language plpgsql as $$
declare
  -- 'agents': reports of many agents in one transaction, each job in the name of its own.
  actor text := current_actor();
  nestloop text := current_setting('enable_nestloop');
  ended text[];
begin
  -- Each statement here is planned once per session, for as few rows as came first; with a nested loop,
  -- a later one of a thousand rows would compare each with each.
  perform set_config('enable_nestloop', 'off', true);
  insert into events (kind, actor, install_id, job_id, component, data)
  select 'job.' || new_rows.state, case actor when 'agents' then 'agent:' || coalesce(new_rows.agent_id, old_rows.agent_id) else actor end,
         new_rows.install_id, new_rows.id, new_rows.component,
         jsonb_strip_nulls(jsonb_build_object(
           'operation', new_rows.operation, 'from', old_rows.state,
           'epoch', new_rows.generation || '.' || new_rows.n,
           'agent', coalesce(new_rows.agent_id, old_rows.agent_id),
           'reason', case when new_rows.state = 'queued' then left(new_rows.returned_reason, 2000) end,
           'code', new_rows.outcome ->> 'code', 'message', left(new_rows.outcome ->> 'message', 2000)))
  from new_rows join old_rows using (id)
  where new_rows.state is distinct from old_rows.state;

  -- The same executor under another agent: told, although the state is the same.
  insert into events (kind, actor, install_id, job_id, component, data)
  select 'job.adopted', case actor when 'agents' then 'agent:' || coalesce(new_rows.agent_id, old_rows.agent_id) else actor end,
         new_rows.install_id, new_rows.id, new_rows.component,
         jsonb_build_object('epoch', new_rows.generation || '.' || new_rows.n,
                            'from', old_rows.agent_id, 'agent', new_rows.agent_id)
  from new_rows join old_rows using (id)
  where new_rows.agent_id <> old_rows.agent_id;

  insert into events (kind, actor, install_id, job_id, component, data)
  select 'job.cancel_requested', case actor when 'agents' then 'agent:' || coalesce(new_rows.agent_id, old_rows.agent_id) else actor end,
         new_rows.install_id, new_rows.id, new_rows.component,
         jsonb_build_object('epoch', new_rows.generation || '.' || new_rows.n)
  from new_rows join old_rows using (id)
  where new_rows.cancel_requested_at is not null and old_rows.cancel_requested_at is null;

  -- Most updates end no job: look no further.
  select array_agg(distinct coalesce(new_rows.install_id, '')) into ended
  from new_rows join old_rows using (id)
  where new_rows.outcome is not null and old_rows.outcome is null;
  if ended is null then
    perform set_config('enable_nestloop', nestloop, true);
    return null;
  end if;

  insert into events (kind, actor, install_id, job_id, component, data)
  select 'artifact.built', case actor when 'agents' then 'agent:' || coalesce(new_rows.agent_id, old_rows.agent_id) else actor end,
         new_rows.install_id, new_rows.id, new_rows.component,
         new_rows.outcome -> 'artifact'
  from new_rows join old_rows using (id)
  where old_rows.outcome is null and new_rows.outcome ? 'artifact';
  insert into events (kind, actor, install_id, job_id, component, data)
  select 'artifact.copied', case actor when 'agents' then 'agent:' || coalesce(new_rows.agent_id, old_rows.agent_id) else actor end,
         new_rows.install_id, new_rows.id, new_rows.component, copied
  from new_rows join old_rows using (id), jsonb_array_elements(new_rows.outcome -> 'copied') as copied
  where old_rows.outcome is null and new_rows.outcome ? 'copied';

  perform set_config('enable_nestloop', nestloop, true);
  -- An install whose job ended has something to reconcile, even if the server dies right here. In order,
  -- so that two servers that end jobs of the same installs never wait for each other in a circle.
  update installs set reconcile_due_at = clock_timestamp()
  where id in (select id from installs where id = any(ended) order by id for no key update);
  return null;
end $$;

create function record_install_hold() returns trigger language plpgsql as $$
begin
  if new.paused_at is distinct from old.paused_at then
    insert into events (kind, actor, install_id, data)
    values (case when new.paused_at is null then 'install.resumed' else 'install.paused' end,
            current_actor(), new.id,
            jsonb_strip_nulls(jsonb_build_object('reason', new.pause_reason, 'by', new.paused_by)));
  end if;
  if new.recall_since is distinct from old.recall_since then
    insert into events (kind, actor, install_id, data)
    values (case when new.recall_since is null then 'install.recalled' else 'install.recall_begun' end,
            current_actor(), new.id, '{}');
  end if;
  return null;
end $$;
create trigger install_hold_recorded after update of paused_at, recall_since on installs
  for each row execute function record_install_hold();

create function record_agent_drain() returns trigger language plpgsql as $$
begin
  if new.draining_at is distinct from old.draining_at then
    insert into events (kind, actor, install_id, data)
    values (case when new.draining_at is null then 'agent.undrained' else 'agent.draining' end,
            current_actor(), new.install_id,
            jsonb_strip_nulls(jsonb_build_object('agent', new.id, 'reason', new.drain_reason)));
  end if;
  return null;
end $$;
create trigger agent_drain_recorded after update of draining_at on agents
  for each row execute function record_agent_drain();

create function record_conflict() returns trigger language plpgsql as $$
begin
  insert into events (kind, actor, install_id, job_id, component, data)
  values ('store.conflict', current_actor(), new.install_id, new.job_id, new.component,
          jsonb_build_object('key', new.key));
  return null;
end $$;
create trigger conflict_recorded after insert on conflicts
  for each row execute function record_conflict();
