/** What an install's view means to somebody who waits for it; pure. */
import type { ComponentView, InstallView } from "../protocol/api.ts";

export type Judgement = "working" | "done" | "failed";

/** Whether an install has come to rest, and how. */
export function judgeInstall(install: InstallView): Judgement {
  if (install.state === "deleted") return "done";
  if (!install.settled) return "working";
  return failedComponents(install).length > 0 || install.reason !== null ? "failed" : "done";
}

/** The line for somebody who waits for a paused install; null when it is not paused. */
export function describePause({ name, pause }: InstallView): string | null {
  return (
    pause &&
    `\`${name}\` is paused by ${pause.by}: ${pause.reason}. It goes on with \`landfall installs resume ${name}\`.`
  );
}

/** Components whose last job failed. */
export function failedComponents(install: InstallView): readonly ComponentView[] {
  return install.components.filter(({ state }) => state === "failed");
}

/**
 * Whether a deploy has to be asked for so that the install comes to the newest release: it has an older
 * one, or what failed there shall be tried again. An install without a release gets its first by itself.
 */
export function needsDeploy(install: InstallView, releaseNumber: number): boolean {
  if (install.releaseNumber === null) return false;
  return install.releaseNumber !== releaseNumber || judgeInstall(install) === "failed";
}

/** True for a view from before something was asked for: the live feed may lag behind an answer. */
export function isStale(seen: InstallView, asked: InstallView): boolean {
  return seen.id !== asked.id || seen.deploy < asked.deploy;
}
