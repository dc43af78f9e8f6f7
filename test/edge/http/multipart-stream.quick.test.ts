import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readMultipart } from '#edge/http/multipart-stream.ts';

/** A form is the same, wherever the network cuts it. */

interface Part {
  readonly name: string;
  readonly filename: string | null;
  readonly bytes: Buffer;
}

const boundary = 'x-b';
const contentType = `multipart/form-data; boundary=${boundary}`;

function formOf(parts: readonly Part[]): Buffer {
  const written = parts.flatMap(({ name, filename, bytes }) => [
    Buffer.from(`--${boundary}\r\nContent-Disposition: form-data; name="${name}"`),
    Buffer.from(filename === null ? '\r\n\r\n' : `; filename="${filename}"\r\nContent-Type: text/plain\r\n\r\n`),
    bytes,
    Buffer.from('\r\n'),
  ]);
  return Buffer.concat([...written, Buffer.from(`--${boundary}--\r\n`)]);
}

async function* cut(bytes: Buffer, sizes: readonly number[]): AsyncGenerator<Buffer> {
  let at = 0;
  for (let index = 0; at < bytes.length; index += 1) {
    const size = sizes[index % sizes.length] ?? 1;
    yield bytes.subarray(at, at + size);
    at += size;
  }
}

async function read(bytes: Buffer, sizes: readonly number[] = [bytes.length], partsMax = 8): Promise<Part[]> {
  const found: Part[] = [];
  await readMultipart(cut(bytes, sizes), { contentType, partsMax }, ({ name, filename }) => {
    const taken: Buffer[] = [];
    return {
      add: (part) => void taken.push(Buffer.from(part)),
      end: () => void found.push({ name, filename, bytes: Buffer.concat(taken) }),
    };
  });
  return found;
}

describe('a malformed form', () => {
  it.each([
    ['nothing', ''],
    ['another boundary', '--y\r\n\r\n--y--'],
    [
      'no end',
      formOf([{ name: 'a', filename: null, bytes: Buffer.from('x') }])
        .toString()
        .slice(0, -6),
    ],
    ['a part without a name', `--${boundary}\r\nContent-Disposition: form-data\r\n\r\nx\r\n--${boundary}--`],
    ['a part without a head', `--${boundary}\r\n\r\nx\r\n--${boundary}--`],
    ['an endless head', `--${boundary}\r\n${'x'.repeat(10_000)}\r\n\r\n`],
    ['an endless epilogue', `--${boundary}--\r\n${'x'.repeat(70_000)}`],
    ['an endless preamble', 'x'.repeat(5000)],
    ['a boundary that goes on', `--${boundary}zzz\r\n\r\n`],
  ])('is rejected for %s', async (_name, text) => {
    await expect(read(Buffer.from(text), [7])).rejects.toThrow(/^body: /);
  });

  it('is rejected for more than 8 parts', async () => {
    const part = { name: 'a', filename: null, bytes: Buffer.alloc(0) };
    await expect(read(formOf(Array.from({ length: 9 }, () => part)))).rejects.toThrow('more than 8 parts');
  });
});

describe('a form', () => {
  // Pieces that look like the boundary, and are none.
  const piece = fc.constantFrom(
    '\r\n',
    '--',
    `--${boundary.slice(0, 2)}`,
    '\r',
    '-',
    'x',
    `\r\n--${boundary.slice(0, 2)}`,
    '\0',
    'é',
  );
  const bytes = fc.array(piece, { maxLength: 30 }).map((pieces) => Buffer.from(pieces.join('')));
  const part = fc.record({
    name: fc.constantFrom('file', 'purpose'),
    filename: fc.constantFrom(null, 'a.jsonl'),
    bytes,
  });

  it('is read as its parts, for any division into chunks', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(part, { maxLength: 4 }),
        fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 6 }),
        async (parts, sizes) => {
          const isAmbiguous = parts.some((one) =>
            Buffer.concat([Buffer.from('\r\n'), one.bytes]).includes(`\r\n--${boundary}`),
          );
          fc.pre(!isAmbiguous);
          expect(await read(formOf(parts), sizes)).toEqual(parts);
        },
      ),
    );
  });
});
