/** The status page: a shell that `status.js` fills and keeps up to date from `/api/live`. */
import { html, readAsset, renderPage } from "./html.ts";

/** The status page. */
export async function renderStatus(nonce: string): Promise<string> {
  const [base, own, script] = await Promise.all([
    readAsset("page.css"),
    readAsset("status.css"),
    readAsset("status.js"),
  ]);
  return renderPage(
    { title: "Landfall", nonce, styles: base + own, script },
    html`<header class="bar">
<h1><span class="mark" aria-hidden="true"></span>Landfall</h1>
<span id="connection" class="connection" role="status">connecting</span>
<nav><a href="/docs">API docs</a>
<form method="post" action="/sign-out"><button type="submit" class="link">Sign out</button></form></nav>
</header>
<main>
<section aria-labelledby="installs-title">
<h2 id="installs-title">Installs</h2>
<div id="installs"><p class="quiet">Loading.</p></div>
</section>
<section aria-labelledby="agents-title">
<h2 id="agents-title">Agents</h2>
<div id="agents" class="agents"></div>
</section>
<section aria-labelledby="jobs-title">
<h2 id="jobs-title">Jobs</h2>
<div class="card scroll"><table>
<thead><tr><th>Operation</th><th>Component</th><th>Install</th><th>State</th>
<th class="number">Took</th><th class="number">Created</th></tr></thead>
<tbody id="jobs"></tbody>
</table></div>
</section>
<noscript><p class="problem">This page needs JavaScript. The command line shows the same: landfall installs show.</p></noscript>
</main>
<aside id="log" class="log" aria-label="Log of a job" hidden>
<header><strong id="log-title"></strong><span id="log-state" class="badge"></span>
<button id="log-close" type="button" class="link" aria-label="Close the log">Close</button></header>
<p id="log-reason" class="problem" hidden></p>
<pre id="log-lines" tabindex="0"></pre>
</aside>`,
  );
}
