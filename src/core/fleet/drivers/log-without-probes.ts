import type { Readable } from 'node:stream';
import { demultiplex, readLogLines } from '#base/docker/docker.ts';
import type { LogOptions } from './driver.ts';
import { isProbe } from './cause-line.ts';

/** Reads logs without the lines of Headgate's own probes, which would hide everything else. */

const linesMax = 10_000;
/** Lines read per line that is wanted, since many may be probes. */
const linesPerLine = 20;

/** Returns the last lines of a program that are not probes. */
export function lastLogLines(text: string, count: number): string[] {
  const lines = text.replace(/\r?\n$/, '').split(/\r?\n/);
  return count === 0 || text === '' ? [] : lines.filter((line) => !isProbe(line)).slice(-count);
}

export interface ContainerLog {
  /** Returns the last lines, as the Engine API frames them. */
  tail(lines: number): Promise<Buffer>;
  /** Streams the last lines and all later ones. */
  follow(lines: number): Promise<Readable>;
}

export async function* containerLogLines(
  log: ContainerLog,
  { tailLines, follow, signal }: LogOptions,
): AsyncGenerator<string> {
  const count = Math.min(tailLines, linesMax);
  const read = Math.min(count * linesPerLine, linesMax);
  const text = count === 0 ? '' : demultiplex(await log.tail(read));
  if (!follow) {
    yield* lastLogLines(text, count);
    return;
  }
  for await (const line of readLogLines(await log.follow(linesHolding(text, count) ?? read), signal)) {
    if (!isProbe(line)) yield line;
  }
}

/**
 * Returns how many lines at the end of a text contain `count` lines that are not probes; null if the text has fewer:
 * more may follow.
 */
function linesHolding(text: string, count: number): number | null {
  const lines = text === '' ? [] : text.replace(/\r?\n$/, '').split(/\r?\n/);
  let missing = count;
  let at = lines.length;
  while (at > 0 && missing > 0) {
    at -= 1;
    if (!isProbe(lines[at] ?? '')) missing -= 1;
  }
  return missing > 0 ? null : lines.length - at;
}
