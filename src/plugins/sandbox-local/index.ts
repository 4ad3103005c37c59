/** `sandbox/local`: the machine itself as the place of an install, without cloud and without containers. */
import type { Plugin } from "../../plugin/plugin.ts";
import { provision } from "./provision.ts";
import { remove } from "./remove.ts";

export const plugin: Plugin = {
  sheet: { name: "sandbox/local", needs: [], operations: ["provision", "destroy"] },
  operations: { provision, destroy: remove },
};
