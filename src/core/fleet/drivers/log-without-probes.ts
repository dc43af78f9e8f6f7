import type { Readable } from 'node:stream';
import { demultiplex, readLogLines } from '#base/docker/docker.ts';
import type { LogOptions } from './driver.ts';
import { isProbe } from './cause-line.ts';

/** Logs without the lines of Headgate's own probes, which would hide everything else. */

const linesMax = 10_000;
/** So many lines are read for each that is wanted. */
const linesPerLine = 20;

/** The last of a program's lines that tell something. */
export function lastLogLines(text: string, count: number): string[] {
  const lines = text.replace(/\r?\n$/, '').split(/\r?\n/);
  return count === 0 || text === '' ? [] : lines.filter((line) => !isProbe(line)).slice(-count);
}

export interface ContainerLog {
  /** The last lines, as the Engine API frames them. */
  tail(lines: number): Promise<Buffer>;
  /** The last lines and those that come. */
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

/** How many lines at the end of a text hold so many that tell something; null where it has fewer: more may come yet. */
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
