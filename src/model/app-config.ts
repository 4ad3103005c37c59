/**
 * An app as its vendor describes it: numbered and immutable once the server has it.
 *
 * `config` reads a directory into this; the server stores it as JSON; nothing in it is rendered yet:
 * templates are text here, and become values only in the executor, inside an install.
 */
import type { Position } from "./fault.ts";
import type { JsonObject } from "./json.ts";

export interface AppConfig {
  readonly name: string;
  readonly displayName: string;
  readonly description: string;
  readonly sandbox: SandboxConfig;
  readonly inputs: readonly InputConfig[];
  readonly components: readonly ComponentConfig[];
}

export interface SandboxConfig {
  /** `local` is the machine itself; others come with their own sandboxes. */
  readonly type: string;
  readonly config: JsonObject;
}

export interface InputConfig {
  readonly name: string;
  readonly displayName: string;
  readonly description: string;
  readonly group: string;
  readonly default: string | null;
  readonly required: boolean;
  readonly sensitive: boolean;
}

export interface ComponentConfig {
  readonly name: string;
  /** The plugin that builds, plans, applies and destroys it. */
  readonly type: string;
  /** Listed and implied by templates, sorted, no repeats. */
  readonly dependencies: readonly string[];
  /** A folder relative to the app's root, or null when the component has no source. */
  readonly source: { readonly path: string } | null;
  /** The type's own keys, with the app format's names (`env_vars`, `command`, …), file references resolved. */
  readonly config: JsonObject;
  /** Declared outputs, so that references can be checked before anything runs. */
  readonly outputs: { readonly [name: string]: { readonly sensitive: boolean } };
  /** Capabilities that the sandbox must have. */
  readonly needs: readonly string[];
  readonly position: Position;
}
