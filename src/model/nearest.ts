/**
 * "Did you mean …?": the name that a person probably meant.
 *
 * A suggestion is made only for a small slip, so that it helps and never misleads.
 */

const lengthMax = 64;

/** The candidate nearest to `name`, or null when none is within a third of its length. */
export function suggest(name: string, candidates: Iterable<string>): string | null {
  let best: string | null = null;
  let bestDistance = Math.max(1, Math.floor(name.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(name.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

/** ` Did you mean …?` with a leading space, or nothing. */
export function didYouMean(name: string, candidates: Iterable<string>): string {
  const found = suggest(name, candidates);
  return found === null ? "" : ` Did you mean \`${found}\`?`;
}

/** How many letters must be added, dropped, changed or swapped with their neighbour. */
export function editDistance(a: string, b: string): number {
  if (a.length > lengthMax || b.length > lengthMax) return a === b ? 0 : lengthMax;
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= b.length; column++) {
      const same = a[row - 1] === b[column - 1];
      let cost = Math.min(
        at(last, column) + 1,
        at(current, column - 1) + 1,
        at(last, column - 1) + (same ? 0 : 1),
      );
      const swapped = a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      if (row > 1 && column > 1 && swapped) cost = Math.min(cost, at(beforeLast, column - 2) + 1);
      current.push(cost);
    }
    [beforeLast, last] = [last, current];
  }
  return at(last, b.length);
}

function at(row: readonly number[], column: number): number {
  return row[column] ?? Number.MAX_SAFE_INTEGER;
}
