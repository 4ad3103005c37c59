/**
 * HTML as text that is safe by construction: whatever is put into a template is escaped, unless it is
 * HTML that was made the same way.
 */
import { readFile } from "node:fs/promises";

const mark = Symbol("html");

export interface Html {
  readonly [mark]: true;
  readonly text: string;
}

type Part = string | number | Html | readonly Html[] | null;

/** HTML with its parts escaped. */
export function html(strings: TemplateStringsArray, ...parts: readonly Part[]): Html {
  const texts = parts.map((part) => {
    if (part === null) return "";
    if (typeof part === "string" || typeof part === "number") return escapeText(String(part));
    return "text" in part ? part.text : part.map(({ text }) => text).join("");
  });
  return trust(String.raw({ raw: strings }, ...texts));
}

/** Styles or scripts of our own files, taken as they are. */
export function trust(text: string): Html {
  return { [mark]: true, text };
}

/** A whole page. The scripts' and styles' nonce is the one that the answer's policy names. */
export function renderPage(
  {
    title,
    nonce,
    styles,
    script,
  }: { title: string; nonce: string; styles: string; script?: string },
  body: Html,
): string {
  const scripts = script
    ? html`<script type="module" nonce="${nonce}">${trust(script)}</script>`
    : null;
  return html`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<link rel="icon" href="data:,">
<style nonce="${nonce}">${trust(styles)}</style>
</head>
<body>
${body}
${scripts}
</body>
</html>
`.text;
}

/** Reads a style or script that lies beside this file. */
export function readAsset(
  name: "page.css" | "status.css" | "docs.css" | "status.js",
): Promise<string> {
  return readFile(new URL(name, import.meta.url), "utf8");
}

const entities: Readonly<Record<string, string>> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};

function escapeText(text: string): string {
  return text.replace(/[&<>"']/g, (character) => entities[character] ?? "");
}
