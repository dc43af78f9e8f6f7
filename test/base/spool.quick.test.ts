import { randomBytes } from 'node:crypto';
import { appendFile, mkdtemp, readdir, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { openSpool, type Spool, type SpoolOptions } from '#base/spool.ts';

const log = createLog('silent');
const buffers = (...texts: string[]): Buffer[] => texts.map((text) => Buffer.from(text));

let folder: string;
let opened: Spool[] = [];
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'headgate-spool-'));
});
afterEach(async () => {
  for (const spool of opened) await spool.close();
  opened = [];
  await rm(folder, { recursive: true });
});

async function openHere(more: Partial<SpoolOptions> = {}): Promise<Spool> {
  const spool = await openSpool({ folder, log, ...more });
  opened.push(spool);
  return spool;
}

/** Every entry that is left, without saying that any is done. */
async function readAll(spool: Spool, atOnce = 3): Promise<string[]> {
  const texts: string[] = [];
  while (!spool.isRead) texts.push(...(await spool.read(atOnce)).map(({ data }) => data.toString()));
  return texts;
}

async function onlySegment(): Promise<string> {
  const [name, ...more] = await readdir(folder);
  if (name === undefined || more.length > 0) throw new Error(`not one segment: ${[name, ...more].join(', ')}`);
  return join(folder, name);
}

describe('a spool whose process was killed', () => {
  it('returns everything that was appended and not done, in order', async () => {
    const spool = await openHere();
    await spool.append(buffers('a', 'b'));
    await spool.append(buffers('c'));
    const [first] = await spool.read(1);
    if (first !== undefined) await spool.done(first);
    const again = await openHere();
    expect(await readAll(again)).toEqual(['a', 'b', 'c']);
    expect(again.count).toBe(3);
  });

  it.each([1, 4, 8, 9])('ignores a last entry with %i missing bytes', async (missing) => {
    const spool = await openHere();
    await spool.append(buffers('whole', 'torn'));
    const path = await onlySegment();
    await truncate(path, (await readFile(path)).length - missing);
    expect(await readAll(await openHere())).toEqual(['whole']);
  });

  it('ignores zeros after the last entry', async () => {
    const spool = await openHere();
    await spool.append(buffers('whole'));
    await appendFile(await onlySegment(), Buffer.alloc(4096));
    expect(await readAll(await openHere())).toEqual(['whole']);
  });

  it('reads the entries before and after damage at any byte, and keeps a copy of the file', async () => {
    const texts = ['first', 'second', 'third', 'fourth'];
    const spool = await openHere();
    await spool.append(buffers(...texts));
    const path = await onlySegment();
    const bytes = await readFile(path);
    const starts = texts.map((_, index) => texts.slice(0, index).reduce((sum, text) => sum + 8 + text.length, 0));
    for (let at = 0; at < bytes.length; at += 1) {
      for (const name of await readdir(folder)) await rm(join(folder, name));
      const damaged = Buffer.from(bytes);
      damaged.writeUInt8(damaged.readUInt8(at) ^ 0x41, at);
      await writeFile(path, damaged);
      const hit = starts.findLastIndex((start) => start <= at);
      const expected = texts.filter((_, index) => index !== hit);
      const again = await openHere();
      expect([at, again.count, await readAll(again)]).toEqual([at, 3, expected]);
      expect(await readFile(`${path}.damaged`)).toEqual(damaged);
      // A rescued record is there once, and there is no damage any more.
      await rm(`${path}.damaged`);
      expect(await readAll(await openHere())).toEqual(expected);
      expect((await readdir(folder)).filter((name) => name.endsWith('.damaged'))).toEqual([]);
    }
  });

  it('continues after a hole of zeros, and after random bytes', async () => {
    for (const hole of [Buffer.alloc(4096), randomBytes(100_000)]) {
      const spool = await openHere();
      await spool.append(buffers('before'));
      await spool.append(buffers('behind', 'last'));
      const path = await onlySegment();
      const bytes = await readFile(path);
      await writeFile(path, Buffer.concat([bytes.subarray(0, 14), hole, bytes.subarray(14)]));
      expect(await readAll(await openHere())).toEqual(['before', 'behind', 'last']);
      for (const name of await readdir(folder)) await rm(join(folder, name));
    }
  });

  it('reads the entries around a damaged one, and keeps a copy of the file', async () => {
    const spool = await openHere();
    await spool.append(buffers('first', 'second', 'third'));
    const path = await onlySegment();
    const bytes = await readFile(path);
    bytes.writeUInt8(bytes.readUInt8(22) ^ 1, 22);
    await writeFile(path, bytes);
    expect(await readAll(await openHere())).toEqual(['first', 'third']);
    expect(await readFile(`${path}.damaged`)).toEqual(bytes);
  });

  it.each([0, 1, 4, 8])('keeps a copy of a file that is damaged at byte %i', async (at) => {
    const spool = await openHere();
    await spool.append(buffers('only'));
    const path = await onlySegment();
    const bytes = await readFile(path);
    bytes.writeUInt8(bytes.readUInt8(at) ^ 1, at);
    await writeFile(path, bytes);
    expect((await openHere()).isRead).toBe(true);
    expect(await readdir(folder)).toEqual([`${basename(path)}.damaged`]);
    expect(await readFile(`${path}.damaged`)).toEqual(bytes);
  });
});

describe('a spool', () => {
  it('deletes its files once all their entries are done, in any order', async () => {
    const spool = await openHere();
    await spool.append(buffers('a', 'b', 'c'));
    const entries = await spool.read(10);
    for (const entry of entries.toReversed()) await spool.done(entry);
    expect(await readdir(folder)).toEqual([]);
    expect(spool.bytes).toBe(0);
    await spool.append(buffers('d'));
    expect(await readAll(spool)).toEqual(['d']);
  });

  it('begins a new file when one is full, and reads from one to the next', async () => {
    const spool = await openHere({ segmentBytesMax: 30 });
    const texts = Array.from({ length: 20 }, (_, index) => `entry ${index}`);
    for (const text of texts) await spool.append(buffers(text));
    expect((await readdir(folder)).length).toBeGreaterThan(5);
    expect(await readAll(await openHere())).toEqual(texts);
    expect(await readAll(spool, 1)).toEqual(texts);
  });

  it('takes over the files of another folder while it is open, and reads them after its own', async () => {
    const other = join(folder, 'other');
    const left = await openHere({ folder: other });
    await left.append(buffers('left'));
    await left.close();
    const own = join(folder, 'own');
    const spool = await openHere({ folder: own });
    await spool.append(buffers('before'));
    await spool.takeOver(other);
    await spool.takeOver(join(folder, 'none'));
    await spool.append(buffers('after'));
    expect([spool.count, await readdir(other)]).toEqual([3, []]);
    expect(await readAll(await openHere({ folder: own }))).toEqual(expect.arrayContaining(['left', 'before', 'after']));
    expect(await readAll(spool)).toEqual(['before', 'after', 'left']);
  });

  it('returns an entry that is larger than one read', async () => {
    const spool = await openHere();
    const large = Buffer.alloc(5_000_000, 7);
    await spool.append([Buffer.from('a'), large, Buffer.from('b')]);
    const read: Buffer[] = [];
    while (!spool.isRead) read.push(...(await spool.read(10)).map(({ data }) => data));
    expect(read.map((data) => data.length)).toEqual([1, 5_000_000, 1]);
    expect(read[1]?.equals(large)).toBe(true);
  });

  it('returns what was appended, for any cut of its file', async () => {
    const entries = fc.array(fc.uint8Array({ minLength: 1, maxLength: 40 }), { minLength: 1, maxLength: 8 });
    await fc.assert(
      fc.asyncProperty(entries, fc.double({ min: 0, max: 1, noNaN: true }), async (texts, part) => {
        const own = await mkdtemp(join(folder, 'cut-'));
        const spool = await openHere({ folder: own });
        await spool.append(texts.map((bytes) => Buffer.from(bytes)));
        await spool.close();
        const [name = ''] = await readdir(own);
        const size = texts.reduce((sum, bytes) => sum + bytes.length + 8, 0);
        const cut = Math.floor(size * part);
        await truncate(join(own, name), cut);
        let end = 0;
        const whole = texts.filter((bytes) => (end += bytes.length + 8) <= cut);
        const again = await openHere({ folder: own });
        const read: Buffer[] = [];
        while (!again.isRead) read.push(...(await again.read(2)).map(({ data }) => data));
        expect(read).toEqual(whole.map((bytes) => Buffer.from(bytes)));
      }),
      { numRuns: 50 },
    );
  });
});
