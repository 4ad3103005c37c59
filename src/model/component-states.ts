/** What a component of an install is doing, as people are told; derived each time, stored nowhere. */

export const componentStates = [
  "disabled", // this machine cannot run it; `reason` says why
  "waiting", // for components that it depends on
  "building", // its artifact is being built
  "syncing",
  "planning",
  "applying",
  "active",
  "failed",
  "destroying",
  "removed",
] as const;
export type ComponentState = (typeof componentStates)[number];

/** True for a component of which nothing more is to be done in this deploy. */
export function isAtRest(state: ComponentState): boolean {
  return state === "active" || state === "disabled" || state === "removed";
}
