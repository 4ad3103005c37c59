/** Why something waits, as a tree that people read; pure. */
import type { WhyAnswer } from "../protocol/api.ts";
import { paint, type Tone } from "./terminal.ts";

/** The answer's lines: the sentence, what it waits for as a tree, the first cause, what would help. */
export function renderWhy(why: WhyAnswer, colours: boolean): string[] {
  const lines = [
    paint(colours, toneOf(why.state), why.summary),
    ...branchesOf(why.because, "", colours),
  ];
  if (why.firstCause) {
    const { jobId, code, message, at } = why.firstCause;
    const what = message === null ? code : `${code}: ${message}`;
    lines.push(
      "",
      `${paint(colours, "bold", "First cause")}, at ${at}: ${what}`,
      `  landfall logs ${jobId}`,
    );
  }
  if (why.unblock.length > 0) {
    lines.push("", paint(colours, "bold", "What would help:"));
    lines.push(...why.unblock.map((text) => `  • ${text}`));
  }
  return lines;
}

function branchesOf(because: readonly WhyAnswer[], indent: string, colours: boolean): string[] {
  return because.flatMap((each, index) => {
    const isLast = index === because.length - 1;
    const mark = paint(colours, "dim", `${indent}${isLast ? "└" : "├"} `);
    const kind = each.wait === null ? "" : `${paint(colours, "accent", nameWait(each.wait))}: `;
    // A chain often says at each step what the next one says too: the tree says it once.
    const [first] = each.because;
    const inner = first && each.summary.endsWith(first.summary) ? first.summary : null;
    const text = inner ? each.summary.slice(0, -inner.length).replace(/:?\s*$/, ".") : each.summary;
    return [
      `${mark}${kind}${text}`,
      ...branchesOf(each.because, `${indent}${isLast ? "  " : "│ "}`, colours),
    ];
  });
}

function nameWait(wait: NonNullable<WhyAnswer["wait"]>): string {
  return wait.replaceAll("_", " ");
}

function toneOf(state: string): Tone {
  if (["failed", "unreachable"].includes(state)) return "bad";
  if (["succeeded", "active", "done"].includes(state)) return "good";
  return ["cancelled", "deleted", "removed", "superseded"].includes(state) ? "dim" : "busy";
}
