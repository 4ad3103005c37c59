/**
 * A small explicit-state model checker: breadth first over every reachable state, so that the first
 * counterexample is a shortest one. A move changes a fresh copy of its state; a state is known by its key.
 *
 * Invariant: it never gives a verdict on part of the states: passing `statesMax` is an error.
 */

/** One thing that may happen in a state. */
export interface Move<State> {
  readonly label: string;
  /** Something that should not happen: a crash, a cut, a person's haste. Progress must not count on it. */
  readonly fault: boolean;
  /** Changes the copy; gives what it broke, or nothing. */
  readonly apply: (draft: State) => string | undefined;
}

export interface Model<State> {
  readonly initial: State;
  moves(state: State): Iterable<Move<State>>;
  /** A state where all is said and done. */
  isGood(state: State): boolean;
  copy(state: State): State;
  /** The same for the same state, and different for different ones. */
  keyOf(state: State): string;
}

export interface Exploration {
  readonly states: number;
  readonly moves: number;
  /** How often each kind of move was made: its label up to the first colon. */
  readonly kinds: ReadonlyMap<string, number>;
  /** What was broken and the shortest way there; null when nothing was. */
  readonly violation: { readonly broken: string; readonly trace: readonly string[] } | null;
  /** The shortest way to a state from which no good one can be reached without a fault; null: there is none. */
  readonly stuck: { readonly trace: readonly string[] } | null;
}

/** Explores every state; stops at the first violation. */
export function explore<State>(model: Model<State>, statesMax: number): Exploration {
  const ids = new Map([[model.keyOf(model.initial), 0]]);
  /** Found, and not looked into yet. */
  const open: (State | undefined)[] = [model.initial];
  const parents: { from: number; label: string }[] = [{ from: -1, label: "" }];
  /** Per state: who leads to it without a fault. */
  const calm: number[][] = [[]];
  const good: number[] = [];
  const labels = new Map<string, number>();
  let made = 0;

  function traceOf(id: number): string[] {
    const trace: string[] = [];
    for (let at = id; at > 0; at = parents[at]?.from ?? 0) trace.unshift(parents[at]?.label ?? "");
    return trace;
  }

  for (let id = 0; id < open.length; id++) {
    const state = open[id];
    if (state === undefined) break;
    open[id] = undefined;
    if (model.isGood(state)) good.push(id);
    for (const { label, fault, apply } of model.moves(state)) {
      const draft = model.copy(state);
      const broken = apply(draft);
      made += 1;
      labels.set(label, (labels.get(label) ?? 0) + 1);
      if (broken !== undefined) {
        const violation = { broken, trace: [...traceOf(id), label] };
        return { states: open.length, moves: made, kinds: kindsOf(labels), violation, stuck: null };
      }
      const next = model.keyOf(draft);
      let nextId = ids.get(next);
      if (nextId === undefined) {
        nextId = open.length;
        if (nextId >= statesMax) {
          throw new RangeError(`Expected at most ${statesMax} states, got more. Bound the model.`);
        }
        ids.set(next, nextId);
        open.push(draft);
        parents.push({ from: id, label });
        calm.push([]);
      }
      if (!fault && nextId !== id) calm[nextId]?.push(id);
    }
  }
  const lost = firstStuck(calm, good);
  const stuck = lost === null ? null : { trace: traceOf(lost) };
  return { states: open.length, moves: made, kinds: kindsOf(labels), violation: null, stuck };
}

function kindsOf(labels: ReadonlyMap<string, number>): Map<string, number> {
  const kinds = new Map<string, number>();
  for (const [label, count] of labels) {
    const kind = label.split(":")[0] ?? label;
    kinds.set(kind, (kinds.get(kind) ?? 0) + count);
  }
  return kinds;
}

/** The first state that no calm way leads to a good one from. */
function firstStuck(calm: readonly number[][], good: readonly number[]): number | null {
  const reaches = new Uint8Array(calm.length);
  const open = [...good];
  for (const id of good) reaches[id] = 1;
  while (open.length > 0) {
    for (const id of calm[open.pop() ?? 0] ?? []) {
      if (reaches[id]) continue;
      reaches[id] = 1;
      open.push(id);
    }
  }
  const index = reaches.indexOf(0);
  return index < 0 ? null : index;
}
