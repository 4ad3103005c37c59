/** The page where a token is pasted once. */
import { html, readAsset, renderPage } from "./html.ts";

/** The sign-in page, with what went wrong the last time. */
export async function renderSignIn(nonce: string, problem: string | null): Promise<string> {
  const styles = await readAsset("page.css");
  return renderPage(
    { title: "Sign in · Landfall", nonce, styles },
    html`<main class="sign-in">
<h1><span class="mark" aria-hidden="true"></span>Landfall</h1>
<form method="post" action="/sign-in" class="card">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus
  placeholder="lft_…" spellcheck="false">
${problem === null ? null : html`<p class="problem" role="alert">${problem}</p>`}
<button type="submit" class="primary">Sign in</button>
<p class="quiet">The token was printed when the server was set up. This browser then stays signed in for 7 days.</p>
</form>
</main>`,
  );
}
