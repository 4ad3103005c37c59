/**
 * Tables that fit the terminal: pure layout, cells in, lines out.
 *
 * Invariant: no line is wider than the width given, as long as that leaves each column its least;
 * a cut cell ends in an ellipsis, so that nobody takes a part for the whole.
 */
import { paint, type Tone } from "./terminal.ts";

export type Cell = string | { readonly text: string; readonly tone: Tone };

const gap = "  ";
const columnWidthMin = 6;

/** The lines of a table with a heading; the last column takes what is left. */
export function formatTable(
  headings: readonly string[],
  rows: readonly (readonly Cell[])[],
  options: { width: number; colours: boolean },
): string[] {
  const widths = fitWidths(
    headings.map((heading, column) =>
      Math.max(heading.length, ...rows.map((row) => cellText(row[column]).length)),
    ),
    options.width,
  );
  const line = (cells: readonly Cell[]) =>
    widths
      .map((width, column) => {
        const text = cut(cellText(cells[column]), width);
        const padded = column === widths.length - 1 ? text : text.padEnd(width);
        return paint(options.colours, cellTone(cells[column]), padded);
      })
      .join(gap)
      .trimEnd();
  return [
    line(headings.map((heading) => ({ text: heading.toUpperCase(), tone: "dim" as const }))),
    ...rows.map(line),
  ];
}

/** Takes from the widest column, one at a time, until all fit or none can give. */
export function fitWidths(natural: readonly number[], total: number): number[] {
  const widths = [...natural];
  const available = total - gap.length * Math.max(0, widths.length - 1);
  let excess = widths.reduce((sum, width) => sum + width, 0) - available;
  while (excess > 0) {
    const widest = widths.indexOf(Math.max(...widths));
    const width = widths[widest];
    if (width === undefined || width <= columnWidthMin) break;
    widths[widest] = width - 1;
    excess--;
  }
  return widths;
}

/** The text on one line, cut to a width. */
export function cut(text: string, width: number): string {
  const flat = text.replaceAll(/\s*[\r\n]+\s*/g, " ");
  return flat.length <= width ? flat : `${flat.slice(0, Math.max(0, width - 1))}…`;
}

function cellText(cell: Cell | undefined): string {
  const text = typeof cell === "string" ? cell : (cell?.text ?? "");
  return text.replaceAll(/\s*[\r\n]+\s*/g, " ");
}

function cellTone(cell: Cell | undefined): Tone {
  return typeof cell === "object" ? cell.tone : "plain";
}
