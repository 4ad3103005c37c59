/**
 * The status page's own script: draws what `/api/live` sends, and follows the log of one job.
 *
 * Everything that comes from the server is put in as text, never as HTML.
 */
const svgNamespace = "http://www.w3.org/2000/svg";
const node = { width: 168, height: 46, gapX: 56, gapY: 16 };
const linesMax = 5000;

const tones = {
  good: ["active", "succeeded"],
  busy: ["building", "syncing", "planning", "applying", "running", "offered", "provisioning"],
  bad: ["failed"],
  warn: ["unreachable", "destroying", "deleting", "cancelled", "paused", "draining"],
};

let live = { installs: [], jobs: [], agents: [], builds: [] };
let chosenJob = null;
let stopFollowing = () => {};

const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

function svg(tag, attributes = {}, ...children) {
  const made = document.createElementNS(svgNamespace, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function toneOf(state) {
  const found = Object.entries(tones).find(([, states]) => states.includes(state));
  return `tone-${found ? found[0] : "idle"}`;
}

/** Columns by the longest way from a component without dependencies; rows near what they depend on. */
function layOut(components) {
  const known = new Map(components.map((component) => [component.name, component]));
  const depths = new Map();
  const depthOf = (name) => {
    if (depths.has(name)) return depths.get(name);
    depths.set(name, 0);
    const needed = known.get(name).dependencies.filter((other) => known.has(other));
    const depth = needed.length === 0 ? 0 : 1 + Math.max(...needed.map(depthOf));
    depths.set(name, depth);
    return depth;
  };
  // A component without dependencies stands right before the first that needs it: shorter lines.
  const columnOf = ({ name, dependencies }) => {
    const depth = depthOf(name);
    if (dependencies.some((other) => known.has(other))) return depth;
    const users = components.filter((other) => other.dependencies.includes(name));
    return users.length === 0 ? 0 : Math.min(...users.map((user) => depthOf(user.name))) - 1;
  };
  const columns = [];
  for (const component of components) {
    const { name } = component;
    const depth = columnOf(component);
    columns[depth] ??= [];
    columns[depth].push(name);
  }
  const rows = new Map();
  for (const column of columns) {
    const weight = (name) => {
      const above = known.get(name).dependencies.filter((other) => rows.has(other));
      return above.reduce((sum, other) => sum + rows.get(other), 0) / (above.length || 1);
    };
    column.sort((a, b) => weight(a) - weight(b) || (a < b ? -1 : 1));
    for (const [row, name] of column.entries()) rows.set(name, row);
  }
  const tallest = Math.max(0, ...columns.map((column) => column.length));
  const places = new Map();
  for (const [index, column] of columns.entries()) {
    const offset = ((tallest - column.length) * (node.height + node.gapY)) / 2;
    for (const [row, name] of column.entries()) {
      const x = 1 + index * (node.width + node.gapX);
      places.set(name, { x, y: 1 + offset + row * (node.height + node.gapY) });
    }
  }
  return {
    places,
    width: columns.length * (node.width + node.gapX) - node.gapX + 2,
    height: tallest * (node.height + node.gapY) - node.gapY + 2,
  };
}

function drawEdge(from, to) {
  const [x1, y1] = [from.x + node.width, from.y + node.height / 2];
  const [x2, y2] = [to.x, to.y + node.height / 2];
  const bend = (x2 - x1) / 2;
  return svg("path", {
    class: "edge",
    d: `M${x1},${y1} C${x1 + bend},${y1} ${x2 - bend},${y2} ${x2},${y2}`,
  });
}

function drawNode(component, { x, y }) {
  const { name, state, progress, jobId, reason } = component;
  const group = svg("g", {
    class: `node ${toneOf(state)} ${state} ${jobId ? "" : "still"}`,
    transform: `translate(${x},${y})`,
  });
  group.append(
    svg("rect", { width: node.width, height: node.height, rx: 8 }),
    svg("rect", { class: "stripe", y: 10, width: 3, height: node.height - 20, rx: 1.5 }),
  );
  const percent = progress?.total ? Math.min(1, progress.done / progress.total) : 0;
  if (percent > 0) {
    const width = Math.round((node.width - 16) * percent);
    group.append(
      svg("rect", { class: "bar", x: 8, y: node.height - 6, width, height: 3, rx: 1.5 }),
    );
  }
  const label = svg("text", { x: 14, y: 20 });
  label.textContent = name.length > 20 ? `${name.slice(0, 19)}…` : name;
  const below = svg("text", { class: "state", x: 14, y: 36 });
  below.textContent = percent > 0 ? `${state} ${Math.round(percent * 100)} %` : state;
  const title = svg("title");
  title.textContent = `${name} (${component.type}): ${state}${reason ? `, ${reason}` : ""}`;
  group.append(label, below, title);
  if (jobId) {
    group.setAttribute("tabindex", "0");
    group.setAttribute("role", "button");
    group.setAttribute("data-job", jobId);
    group.setAttribute("aria-label", `${name}, ${state}: show the log`);
  }
  return group;
}

function drawGraph(install) {
  const { places, width, height } = layOut(install.components);
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}` });
  for (const { name, dependencies } of install.components) {
    for (const other of dependencies) {
      if (places.has(other)) picture.append(drawEdge(places.get(other), places.get(name)));
    }
  }
  for (const component of install.components) {
    picture.append(drawNode(component, places.get(component.name)));
  }
  return element("div", { class: "graph" }, picture);
}

function describeInstall(install) {
  if (install.state !== "active") return install.state;
  if (install.components.some(({ state }) => state === "failed")) return "failed";
  return install.settled ? "active" : "deploying";
}

function drawInstall(install) {
  const state = describeInstall(install);
  const facts = [
    `app ${install.app}`,
    install.releaseNumber === null ? "no release yet" : `release ${install.releaseNumber}`,
    `deploy ${install.deploy}`,
    `${install.sandboxType} sandbox`,
    install.jobsMax === null ? null : `at most ${install.jobsMax} jobs at once`,
    describeAgent(install.agent),
  ];
  const tone = state === "deploying" ? "tone-busy" : toneOf(state);
  const card = element(
    "article",
    { class: "card install" },
    element(
      "header",
      {},
      element("h3", {}, install.name),
      element("span", { class: `badge ${tone}` }, state),
      install.pause && element("span", { class: "badge tone-warn" }, "paused"),
      element("span", { class: "quiet" }, facts.filter(Boolean).join(" · ")),
    ),
  );
  if (install.pause) card.append(drawPause(install.pause));
  if (install.restoredAt) {
    const text =
      "Held: the server was restored from a back-up, and the agent must tell first what it did since.";
    card.append(element("p", { class: "hold" }, text));
  }
  if (install.reason) card.append(element("p", { class: "problem" }, install.reason));
  if (install.components.length > 0) card.append(drawGraph(install));
  const reasons = install.components.filter(({ reason }) => reason);
  if (reasons.length > 0) {
    const items = reasons.map(({ name, state: own, reason }) =>
      element("li", { class: toneOf(own) }, element("b", {}, name), ` ${own}: ${reason}`),
    );
    card.append(element("ul", { class: "reasons" }, ...items));
  }
  return card;
}

function describeAgent(agent) {
  if (agent === null) return "no agent yet";
  if (!agent.connected) return "agent is away";
  return agent.draining === null ? null : "agent is draining";
}

function drawPause({ reason, by, since }) {
  return element(
    "p",
    { class: "hold" },
    element("b", {}, "Paused"),
    `: ${reason} `,
    element("span", { class: "quiet" }, `by ${by}, since ${new Date(since).toLocaleString()}`),
  );
}

function drawAgent({ id, role, install, connected, revoked, drain, jobs, version }) {
  const parts = [
    revoked ? "revoked" : connected ? "connected" : "away",
    drain && !revoked ? "draining" : null,
    jobs === 0 ? null : jobs === 1 ? "1 job" : `${jobs} jobs`,
    version,
  ];
  const state = parts.filter(Boolean).join(" · ");
  const title = drain && !revoked ? `${id}, draining: ${drain.reason}` : id;
  return element(
    "div",
    { class: "card agent", title },
    element("span", { class: `dot ${revoked ? "" : connected ? (drain ? "warn" : "on") : "off"}` }),
    element("strong", {}, role === "build" ? "build" : (install ?? "install")),
    element("span", { class: "quiet" }, state),
  );
}

function drawJob(job) {
  const own = chosenJob === job.id ? "job chosen" : "job";
  return element(
    "tr",
    { class: own, "data-job": job.id },
    element("td", {}, element("button", { type: "button", class: "link" }, job.operation)),
    element("td", {}, job.component ?? "sandbox"),
    element("td", {}, job.install ?? `${job.app} (app)`),
    element("td", {}, element("span", { class: `badge ${toneOf(job.state)}` }, job.state)),
    element("td", { class: "number", "data-took": job.id }, tookOf(job)),
    element("td", { class: "number quiet", title: job.createdAt }, clockOf(job.createdAt)),
  );
}

function tookOf({ startedAt, finishedAt }) {
  if (!startedAt) return "";
  const end = finishedAt ? Date.parse(finishedAt) : Date.now();
  const seconds = Math.max(0, end - Date.parse(startedAt)) / 1000;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
}

function clockOf(text) {
  return new Date(text).toLocaleTimeString();
}

function quietNote(text) {
  return element("p", { class: "quiet" }, text);
}

function draw() {
  const { installs, agents, jobs } = live;
  const focused = document.activeElement?.closest?.("[data-job]")?.getAttribute("data-job");
  byId("installs").replaceChildren(
    ...(installs.length > 0
      ? installs.map(drawInstall)
      : [quietNote("No install yet. Create one: landfall installs create NAME --app APP")]),
  );
  byId("agents").replaceChildren(
    ...(agents.length > 0 ? agents.map(drawAgent) : [quietNote("No agent has enrolled yet.")]),
  );
  const underWay = jobs.filter((job) => !job.finishedAt);
  const ended = jobs.filter((job) => job.finishedAt);
  byId("jobs").replaceChildren(...[...underWay, ...ended].map(drawJob));
  if (focused) refocus(focused);
  drawLogHead();
}

function refocus(jobId) {
  const found = document.querySelector(`.node[data-job="${CSS.escape(jobId)}"]`);
  const row = document.querySelector(`tr[data-job="${CSS.escape(jobId)}"] button`);
  (row ?? found)?.focus({ preventScroll: true });
}

function drawLogHead() {
  const job = live.jobs.find(({ id }) => id === chosenJob);
  if (!job) return;
  byId("log-title").textContent = [job.operation, job.component ?? "sandbox", job.install]
    .filter(Boolean)
    .join(" · ");
  byId("log-state").textContent = job.state;
  byId("log-state").className = `badge ${toneOf(job.state)}`;
  const reason = job.outcome && job.outcome.status !== "succeeded" ? job.outcome.message : null;
  byId("log-reason").textContent = reason ?? "";
  byId("log-reason").hidden = !reason;
}

function openLog(jobId) {
  stopFollowing();
  chosenJob = jobId;
  byId("log").hidden = false;
  document.body.classList.add("reading");
  byId("log-title").textContent = jobId;
  byId("log-state").textContent = "";
  byId("log-reason").hidden = true;
  byId("log-lines").replaceChildren();
  draw();
  const gone = new AbortController();
  stopFollowing = () => gone.abort();
  follow(jobId, gone.signal).catch((error) => {
    if (!gone.signal.aborted)
      addLine({ type: "log", stream: "system", line: `(${error.message})` });
  });
}

function closeLog() {
  stopFollowing();
  chosenJob = null;
  byId("log").hidden = true;
  document.body.classList.remove("reading");
  draw();
}

async function follow(jobId, signal) {
  const answer = await fetch(`/api/jobs/${encodeURIComponent(jobId)}/logs?follow=1`, { signal });
  if (!answer.ok) throw new Error(`the log cannot be read: ${answer.status}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) if (line !== "") addLine(JSON.parse(line));
  }
  if (byId("log-lines").childElementCount === 0) {
    addLine({ type: "log", stream: "system", line: "(this job wrote no lines)" });
  }
}

function addLine(event) {
  const text =
    event.type === "log"
      ? event.line
      : event.type === "progress"
        ? `${event.label}: ${event.done}${event.total === null ? "" : ` of ${event.total}`} ${event.unit}`
        : event.type === "gap"
          ? `(lines ${event.seq} to ${event.last} are missing: ${event.reason})`
          : `${event.outcome.status}${event.outcome.message ? `: ${event.outcome.message}` : ""}`;
  const kind = event.type === "log" ? event.stream : event.type;
  const box = byId("log-lines");
  const atEnd = box.scrollHeight - box.scrollTop - box.clientHeight < 40;
  const last = box.lastElementChild;
  const made = element("span", { class: kind }, `${text}\n`);
  // Progress replaces the progress before it.
  if (kind === "progress" && last?.className === "progress") last.replaceWith(made);
  else box.append(made);
  while (box.childElementCount > linesMax) box.firstElementChild.remove();
  if (atEnd) box.scrollTop = box.scrollHeight;
}

function showConnection(text, tone) {
  byId("connection").textContent = text;
  byId("connection").className = `connection ${tone}`;
}

function connect() {
  const source = new EventSource("/api/live");
  source.onopen = () => showConnection("live", "on");
  source.onmessage = ({ data }) => {
    live = JSON.parse(data);
    draw();
  };
  source.onerror = async () => {
    showConnection("the server does not answer", "off");
    if (source.readyState !== EventSource.CLOSED) return;
    // A browser gives up after a refusal: it is either our session or a proxy.
    const answer = await fetch("/api/agents").catch(() => null);
    if (answer?.status === 401) location.assign("/sign-in");
    else setTimeout(connect, 2000);
  };
}

function jobOf(event) {
  return event.target.closest?.("[data-job]")?.getAttribute("data-job") ?? null;
}

document.addEventListener("click", (event) => {
  const jobId = jobOf(event);
  if (jobId) openLog(jobId);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && chosenJob) closeLog();
  const isNode = event.target.closest?.(".node");
  if (isNode && (event.key === "Enter" || event.key === " ")) {
    event.preventDefault();
    openLog(jobOf(event));
  }
});
byId("log-close").addEventListener("click", closeLog);
setInterval(() => {
  for (const job of live.jobs) {
    if (job.finishedAt || !job.startedAt) continue;
    const cell = document.querySelector(`[data-took="${CSS.escape(job.id)}"]`);
    if (cell) cell.textContent = tookOf(job);
  }
}, 200);
connect();
