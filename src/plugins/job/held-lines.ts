/**
 * Lines of a program that declares sensitive outputs are held back until those outputs are known, since
 * a careless program prints its secret before it gives it, and a line that has left cannot be redacted.
 */

const heldBytesMax = 1024 * 1024;

export interface HeldLines {
  add(line: string): void;
  /** Lets go of what is held, oldest first, and says what was too much to hold. */
  release(log: (line: string) => void): void;
}

/** Holds the newest lines, up to a limit. */
export function createHeldLines(bytesMax = heldBytesMax): HeldLines {
  let lines: string[] = [];
  let bytes = 0;
  let dropped = 0;
  return {
    add(line) {
      lines.push(line);
      bytes += Buffer.byteLength(line);
      // A whole half goes at once: taking lines off the front one by one would cost their square.
      while (bytes > bytesMax && lines.length > 1) {
        const gone = lines.slice(0, Math.ceil(lines.length / 2));
        lines = lines.slice(gone.length);
        dropped += gone.length;
        for (const each of gone) bytes -= Buffer.byteLength(each);
      }
    },
    release(log) {
      if (dropped > 0)
        log(`(${dropped} earlier lines were too much to hold back, and are left out)`);
      for (const line of lines) log(line);
      lines = [];
    },
  };
}
