/**
 * The page as one piece of HTML: nothing is loaded from anywhere, and it works without scripts.
 *
 * Invariant: every text that anyone may have written goes through `escapeHtml`.
 */
import { style } from "./style.mjs";

const notes = {
  thanks: ["good", "Thank you! Your line is in the book."],
  empty: ["bad", "A name and a few words are needed."],
  away: [
    "bad",
    "The database is away just now, so nothing was kept. Please try again in a moment.",
  ],
};

/** The whole document. `book` and `greeting` are null when their keepers do not answer. */
export function renderPage({ settings, book, greeting, note, now }) {
  const { title, installName, version, accent } = settings;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(title)} · ${escapeHtml(installName)}</title>
<link rel="icon" href="${iconOf(accent)}">
<style>:root{--accent:${escapeHtml(accent)};--on-accent:${readableOn(accent)}}${style}</style>
</head>
<body>
<div class="glow" aria-hidden="true"></div>
<header>
  <p class="badges"><span class="badge">${escapeHtml(installName)}</span><span class="badge quiet">v${escapeHtml(version)}</span></p>
  <h1>${escapeHtml(title)}</h1>
  <p class="lead">${escapeHtml(greeting?.greeting ?? "Welcome. The greeter is having a rest.")}</p>
  ${renderFigures(book, greeting)}
</header>
<main>
  <section class="sign" aria-labelledby="sign-heading">
    <h2 id="sign-heading">Sign the book</h2>
    ${renderNote(note)}
    <form method="post" action="/sign">
      <label>Your name<input name="name" maxlength="60" required autocomplete="name" placeholder="Who is there?"></label>
      <label>Your line<textarea name="message" maxlength="500" rows="4" required placeholder="Say something nice, or something true."></textarea></label>
      <button type="submit">Sign</button>
    </form>
  </section>
  <section class="book" id="book" aria-labelledby="book-heading">
    <h2 id="book-heading">What people wrote</h2>
    ${renderBook(book, now)}
  </section>
</main>
<section class="parts" aria-labelledby="parts-heading">
  <h2 id="parts-heading">What this install is made of</h2>
  <p class="hint">Each part was deployed after the ones it depends on. What it gave was rendered into the next one's settings, here in the install.</p>
  <ol>${settings.gave.map((part) => renderPart(part, { book, greeting })).join("")}</ol>
</section>
<footer>Guestbook ${escapeHtml(version)}, running as <strong>${escapeHtml(installName)}</strong>. Deployed by Landfall. <a href="/api/status">Status as JSON</a></footer>
</body>
</html>
`;
}

function renderFigures(book, greeting) {
  const figure = (value, label) =>
    `<div><dd>${value === undefined ? "–" : escapeHtml(String(value))}</dd><dt>${label}</dt></div>`;
  const entries = book?.total;
  const visitors = greeting?.visitors;
  return `<dl class="figures">${figure(entries, entries === 1 ? "entry" : "entries")}${figure(visitors, visitors === 1 ? "visit" : "visits")}</dl>`;
}

function renderNote(note) {
  if (!note || !Object.hasOwn(notes, note)) return "";
  const [tone, sentence] = notes[note];
  return `<p class="note ${tone}" role="status">${sentence}</p>`;
}

function renderBook(book, now) {
  if (!book) {
    return '<p class="empty">The database does not answer just now. Nothing is lost; reload in a moment.</p>';
  }
  if (book.entries.length === 0) return '<p class="empty">Not a line yet. Be the first.</p>';
  return `<ol class="entries">${book.entries.map((entry) => renderEntry(entry, now)).join("")}</ol>`;
}

function renderEntry({ name, message, at }, now) {
  const initial = [...name][0]?.toUpperCase() ?? "?";
  return `<li><span class="face" style="--hue:${hueOf(name)}" aria-hidden="true">${escapeHtml(initial)}</span>
<article><header><strong>${escapeHtml(name)}</strong><time datetime="${escapeHtml(at)}">${ago(new Date(at), now)}</time></header><p>${escapeHtml(message)}</p></article></li>`;
}

function renderPart({ name, what, outputs }, { book, greeting }) {
  const isAway = (name === "database" && !book) || (name === "greeter" && !greeting);
  const rows = outputs.map((output) =>
    output.secret
      ? `<div><dt>${escapeHtml(output.name)}</dt><dd class="secret">kept secret</dd></div>`
      : `<div><dt>${escapeHtml(output.name)}</dt><dd>${breakable(output.value || "–")}</dd></div>`,
  );
  return `<li class="${isAway ? "away" : "up"}"><h3>${escapeHtml(name)}</h3><p>${isAway ? "does not answer just now" : escapeHtml(what)}</p><dl>${rows.join("")}</dl></li>`;
}

/** An address that does not fit breaks before its port. */
function breakable(text) {
  return escapeHtml(text).replace(/:(?=\d+$)/, "<wbr>:");
}

function ago(then, now) {
  const seconds = Math.max(0, Math.round((now - then) / 1000));
  if (!Number.isFinite(seconds)) return "";
  const steps = [
    [60, 1, "second"],
    [3600, 60, "minute"],
    [86_400, 3600, "hour"],
    [Number.POSITIVE_INFINITY, 86_400, "day"],
  ];
  if (seconds < 10) return "just now";
  const [, size, unit] = steps.find(([below]) => seconds < below);
  const count = Math.floor(seconds / size);
  return `${count} ${unit}${count === 1 ? "" : "s"} ago`;
}

function hueOf(name) {
  let hue = 0;
  for (const letter of name) hue = (hue * 31 + letter.codePointAt(0)) % 360;
  return hue;
}

/** Dark or light letters, whichever can be read on the colour. */
function readableOn(accent) {
  const [red, green, blue] = [1, 3, 5].map((at) => Number.parseInt(accent.slice(at, at + 2), 16));
  return red * 0.3 + green * 0.59 + blue * 0.11 > 165 ? "#1b1b1f" : "#fff";
}

function iconOf(accent) {
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="9" fill="${accent}"/><path d="M9 22c4-1 5-12 9-12s0 9 5 8" fill="none" stroke="#fff" stroke-width="3" stroke-linecap="round"/></svg>`;
  return `data:image/svg+xml,${encodeURIComponent(svg)}`;
}

function escapeHtml(text) {
  const entities = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
  return String(text).replace(/[&<>"']/g, (letter) => entities[letter]);
}
