import { Readable } from 'node:stream';
import { describe, expect, it } from 'vitest';
import { type ContainerLog, containerLogLines } from '#core/fleet/drivers/log-without-probes.ts';

/** A line of stdout as the Engine API frames it. */
function frame(line: string): Buffer {
  const header = Buffer.alloc(8);
  header.writeUInt8(1);
  header.writeUInt32BE(line.length + 1, 4);
  return Buffer.concat([header, Buffer.from(`${line}\n`)]);
}

/** A log to which lines are added between the look at its end and the moment from which it is followed. */
function growing(before: readonly string[], meanwhile: readonly string[]): ContainerLog {
  const last = (lines: readonly string[], count: number): Buffer[] =>
    count === 0 ? [] : lines.slice(-count).map((line) => frame(line));
  return {
    tail: (count) => Promise.resolve(Buffer.concat(last(before, count))),
    follow: (count) => Promise.resolve(Readable.from(last([...before, ...meanwhile], count))),
  };
}

const probe = 'INFO:     10.0.0.1:5000 - "GET /health HTTP/1.1" 200 OK';
const numbered = (from: number, to: number): string[] =>
  Array.from({ length: to - from + 1 }, (_, index) => `line ${from + index}`);

async function followed(log: ContainerLog, tailLines: number): Promise<string[]> {
  const lines: string[] = [];
  const options = { tailLines, follow: true, signal: new AbortController().signal };
  for await (const line of containerLogLines(log, options)) lines.push(line);
  return lines;
}

describe('a followed container log', () => {
  it('returns every line of a log shorter than the requested tail, including lines added meanwhile', async () => {
    expect(await followed(growing([], numbered(1, 3)), 10)).toEqual(numbered(1, 3));
    expect(await followed(growing(['line 1', probe], numbered(2, 9)), 10)).toEqual(numbered(1, 9));
  });

  it('begins with the requested number of lines, without counting answered probes', async () => {
    expect(await followed(growing(['line 1', 'line 2', probe, 'line 3', probe], []), 2)).toEqual(['line 2', 'line 3']);
    expect(await followed(growing(numbered(1, 9), []), 0)).toEqual([]);
  });
});
