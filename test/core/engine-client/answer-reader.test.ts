import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { AnswerReader } from '#core/engine-client/answer-reader.ts';

const headerBytesMax = 512;

interface Reading {
  status: number | null;
  body: string;
  end: 'open' | 'done' | 'garbage' | 'with_connection';
  surplus: boolean;
}

/** Feeds the pieces as read events do: each in a buffer that is bigger than what was read, and dirty. */
function read(pieces: readonly Buffer[]): Reading & { reader: AnswerReader } {
  const reader = new AnswerReader(headerBytesMax);
  let body = '';
  let surplus = false;
  for (const piece of pieces) {
    const bytes = Buffer.concat([piece, Buffer.from('\r\n\r\n0\r\n\r\n dirt of an earlier read')]);
    if (reader.done) surplus ||= piece.length > 0;
    else body += reader.feed(bytes, piece.length);
  }
  const ended = reader.done ? 'done' : reader.garbage ? 'garbage' : 'open';
  const end = reader.endsWithConnection ? 'with_connection' : ended;
  return { status: reader.head?.status ?? null, body, end, surplus: surplus || reader.surplus, reader };
}

function readText(text: string): Reading & { reader: AnswerReader } {
  return read([Buffer.from(text, 'latin1')]);
}

function shown({ status, body, end, surplus }: Reading): Reading {
  return { status, body, end, surplus };
}

function cutAt(bytes: Buffer, places: readonly number[]): Buffer[] {
  const ends = [...new Set(places)].filter((place) => place > 0 && place < bytes.length).sort((a, b) => a - b);
  return [...ends, bytes.length].map((end, index) => bytes.subarray(index === 0 ? 0 : ends[index - 1], end));
}

const ok = 'HTTP/1.1 200 OK\r\n';

describe('an ambiguous engine answer', () => {
  it.each([
    ['another protocol', 'SSH-2.0-OpenSSH_9.2\r\n'],
    ['HTTP/2 by number', 'HTTP/2.0 200 OK\r\n\r\n'],
    ['no status', 'HTTP/1.1 OK\r\n\r\n'],
    ['a status of two digits', 'HTTP/1.1 20 OK\r\n\r\n'],
    ['a status of four digits', 'HTTP/1.1 2000 OK\r\n\r\n'],
    ['an empty line first', `\r\n${ok}Content-Length: 0\r\n\r\n`],
    ['101, which nobody asked for', 'HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n'],
    ['line ends without CR', 'HTTP/1.1 200 OK\nContent-Length: 0\n\n'],
    ['CR within a line', `${ok}X-A: b\rc\r\nContent-Length: 0\r\n\r\n`],
    ['NUL in a value', `${ok}X-A: b\0c\r\nContent-Length: 0\r\n\r\n`],
    ['a header without a colon', `${ok}Content-Length\r\n\r\n`],
    ['a header without a name', `${ok}: 5\r\n\r\nhello`],
    ['a blank before the colon', `${ok}Content-Length : 5\r\n\r\nhello`],
    ['a folded header', `${ok}X-A: b\r\n Content-Length: 5\r\n\r\nhello`],
    ['a folded first header', `${ok} X-A: b\r\n\r\n`],
    ['both lengths', `${ok}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
    ['both lengths, the other way round', `${ok}transfer-encoding: chunked\r\ncontent-length: 5\r\n\r\n0\r\n\r\n`],
    [
      'both lengths under a status without a body',
      'HTTP/1.1 204 No\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n',
    ],
    ['lengths that differ', `${ok}Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!`],
    ['lengths that differ in one line', `${ok}Content-Length: 5, 6\r\n\r\nhello!`],
    ['a negative length', `${ok}Content-Length: -5\r\n\r\nhello`],
    ['a length with a sign', `${ok}Content-Length: +5\r\n\r\nhello`],
    ['a length that is no integer', `${ok}Content-Length: 5.0\r\n\r\nhello`],
    ['a hexadecimal length', `${ok}Content-Length: 0x5\r\n\r\nhello`],
    ['an empty length', `${ok}Content-Length: \r\n\r\n`],
    ['a length beyond exact numbers', `${ok}Content-Length: 9999999999999999\r\n\r\n`],
    ['another transfer coding', `${ok}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n`],
    ['chunked twice', `${ok}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`],
    ['chunked in HTTP/1.0', 'HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n'],
    ['a head above the limit', `${ok}X-A: ${'a'.repeat(headerBytesMax)}\r\n\r\n`],
    ['a head without an end', `${ok}X-A: ${'a'.repeat(headerBytesMax)}`],
    ['interim answers without an end', 'HTTP/1.1 100 Continue\r\n\r\n'.repeat(30)],
  ])('is rejected for %s', (_name, text) => {
    expect(shown(readText(text))).toMatchObject({ status: null, body: '', end: 'garbage' });
  });

  it.each([
    ['no size', '\r\nhello'],
    ['a negative size', '-5\r\nhello\r\n'],
    ['a size with 0x', '0x5\r\nhello\r\n'],
    ['a size with a blank', '5 \r\nhello\r\n'],
    ['a size that is no number', 'g\r\nhello\r\n'],
    ['a size of too many digits', '00000000000005\r\nhello\r\n'],
    ['a size that ends with LF', '5\nhello\r\n'],
    ['a size that ends with only CR', '5\rhello\r\n'],
    ['an extension that ends with LF', '5;a=b\nhello\r\n'],
    ['an extension above the limit', `5;${'a'.repeat(headerBytesMax + 1)}\r\nhello\r\n`],
    ['trailers above the limit', `0\r\nX-A: ${'a'.repeat(headerBytesMax)}\r\n\r\n`],
    ['a trailer that ends with LF', '0\r\nX-A: b\n\r\n'],
    ['no line end behind the last chunk', '0\r\n\rX'],
  ])('is rejected for a chunked body with %s', (_name, rest) => {
    const { end, body } = readText(`${ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n${rest}`);
    expect({ end, body }).toEqual({ end: 'garbage', body: 'abc' });
  });

  it.each(['abcd\r\n', 'abc\n\r\n', 'abcXX'])('is rejected for a chunk longer than its size: %j', (data) => {
    const { end, body } = readText(`${ok}Transfer-Encoding: chunked\r\n\r\n3\r\n${data}`);
    expect({ end, body }).toEqual({ end: 'garbage', body: 'abc' });
  });
});

/** Answers with what must be read from them. */
const answers: readonly (readonly [string, string, Partial<Reading> & { keepAlive: boolean }])[] = [
  ['by length', `${ok}Content-Length: 5\r\n\r\nhello`, { body: 'hello', end: 'done', keepAlive: true }],
  ['of length 0', `${ok}Content-Length: 0\r\n\r\n`, { body: '', end: 'done', keepAlive: true }],
  [
    'by one length twice',
    `${ok}Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello`,
    { body: 'hello', end: 'done', keepAlive: true },
  ],
  [
    'with bytes behind it',
    `${ok}Content-Length: 5\r\n\r\nhello!`,
    { body: 'hello', end: 'done', surplus: true, keepAlive: true },
  ],
  [
    'with a second answer behind it',
    `${ok}Content-Length: 0\r\n\r\n${ok}`,
    { end: 'done', surplus: true, keepAlive: true },
  ],
  [
    'in chunks',
    `${ok}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0001\r\n \r\nA\r\n\xff\r\n34567\r\n\r\n0\r\n\r\n`,
    { body: 'hello \xff\r\n34567\r\n', end: 'done', keepAlive: true },
  ],
  ['in no chunks', `${ok}transfer-encoding: CHUNKED\r\n\r\n0\r\n\r\n`, { body: '', end: 'done', keepAlive: true }],
  [
    'in chunks with extensions and trailers',
    `${ok}Transfer-Encoding: chunked\r\n\r\n3;a=b;c="d;e"\r\nabc\r\n000;x\r\nX-T: 1\r\nX-U: 2\r\n\r\n`,
    { body: 'abc', end: 'done', keepAlive: true },
  ],
  [
    'in chunks with bytes behind them',
    `${ok}Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nX`,
    { body: 'a', end: 'done', surplus: true, keepAlive: true },
  ],
  ['without a length', `${ok}X-A: b\r\n\r\nhello`, { body: 'hello', end: 'with_connection', keepAlive: false }],
  [
    'without a length that says close',
    `${ok}Connection: close\r\n\r\nhello`,
    { body: 'hello', end: 'with_connection', keepAlive: false },
  ],
  [
    'by length that says close',
    `${ok}Content-Length: 1\r\nConnection: x, Close\r\n\r\na`,
    { body: 'a', end: 'done', keepAlive: false },
  ],
  ['of HTTP/1.0', 'HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na', { body: 'a', end: 'done', keepAlive: false }],
  [
    'of HTTP/1.0 that stays',
    'HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\na',
    { body: 'a', end: 'done', keepAlive: true },
  ],
  [
    'behind interim ones',
    `HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nLink: x\r\nContent-Length: 9\r\n\r\n${ok}Content-Length: 1\r\n\r\na`,
    { body: 'a', end: 'done', keepAlive: true },
  ],
  ['204', 'HTTP/1.1 204 No Content\r\n\r\n', { status: 204, end: 'done', keepAlive: true }],
  [
    '304 with the length that it would have',
    'HTTP/1.1 304 \r\nContent-Length: 5\r\n\r\n',
    { status: 304, end: 'done', keepAlive: true },
  ],
  [
    'without a reason',
    'HTTP/1.1 404\r\nContent-Length: 1\r\n\r\na',
    { status: 404, body: 'a', end: 'done', keepAlive: true },
  ],
];

describe('the answer reader', () => {
  it.each(answers)('reads an answer %s', (_name, text, { keepAlive, ...expected }) => {
    const { reader, ...reading } = readText(text);
    expect(reading).toEqual({ status: 200, body: '', surplus: false, ...expected });
    expect(reader.head?.keepAlive).toBe(keepAlive);
  });

  it.each(answers)('reads an answer %s the same when it is cut at any two bytes', (_name, text) => {
    const bytes = Buffer.from(text, 'latin1');
    const whole = shown(read([bytes]));
    for (let first = 0; first < bytes.length; first += 1) {
      for (let second = first; second < bytes.length; second += 1) {
        expect(shown(read(cutAt(bytes, [first, second])))).toEqual(whole);
      }
    }
  });

  it.each(answers)('reads an answer %s the same byte by byte', (_name, text) => {
    const bytes = Buffer.from(text, 'latin1');
    expect(shown(read(cutAt(bytes, [...bytes.keys()])))).toEqual(shown(read([bytes])));
  });

  it('stays open until the answer is complete', () => {
    for (const [, text, expected] of answers) {
      if (expected.end !== 'done' || expected.surplus === true) continue;
      for (let length = 0; length < text.length; length += 1) expect(readText(text.slice(0, length)).end).toBe('open');
    }
  });
});

describe('headers', () => {
  it('are found by lower-case name, trimmed, joined when repeated, never in the status line or another value', () => {
    const { reader } = readText(
      `HTTP/1.1 200 x-a: 1\r\nX-B: \t 2 \t\r\nx-b:3\r\nX-C: x-d: 4\r\nContent-Length: 0\r\nX-E:\r\nX-É\r\n\r\n`,
    );
    expect(reader.garbage).toBe(true);
    const headers = readText(
      `HTTP/1.1 200 x-a: 1\r\nX-B: \t 2 \t\r\nx-b:3\r\nX-C: x-d: É\r\nContent-Length: 0\r\nX-E:\r\n\r\n`,
    ).reader.head?.headers;
    const found = ['x-a', 'x-b', 'x-c', 'x-d', 'x-e', 'content-length'].map((name) => headers?.get(name));
    expect(found).toEqual([undefined, '2, 3', 'x-d: É', undefined, '', '0']);
  });
});

describe('random engine answers', () => {
  const bodyBytes = fc.uint8Array({ maxLength: 400 }).map((bytes) => Buffer.from(bytes).toString('latin1'));
  const extension = fc.constantFrom('', ';a', ';a=b', ';q="1;2"');
  const chunked = fc
    .tuple(fc.array(fc.tuple(bodyBytes, extension, fc.boolean()), { maxLength: 8 }), fc.constantFrom('', 'X-T: 1\r\n'))
    .map(([chunks, trailer]) => {
      const filled = chunks.filter(([data]) => data !== '');
      const lines = filled.map(([data, ext, upper]) => {
        const size = data.length.toString(16);
        return `${upper ? size.toUpperCase() : size}${ext}\r\n${data}\r\n`;
      });
      const text = `Transfer-Encoding: chunked\r\n\r\n${lines.join('')}0\r\n${trailer}\r\n`;
      return { text, body: filled.map(([data]) => data).join(''), end: 'done' };
    });
  const byLength = bodyBytes.map((body) => ({
    text: `Content-Length: ${body.length}\r\n\r\n${body}`,
    body,
    end: 'done',
  }));
  const untilClose = bodyBytes.map((body) => ({ text: `X-Y: z\r\n\r\n${body}`, body, end: 'with_connection' }));
  const answer = fc.tuple(fc.integer({ min: 200, max: 599 }), fc.oneof(chunked, byLength, untilClose));
  const places = fc.array(fc.nat({ max: 4_000 }), { maxLength: 60 });

  it('have the same status and body however the bytes are cut', () => {
    fc.assert(
      fc.property(answer, places, ([status, { text, body, end }], cuts) => {
        fc.pre(status !== 204 && status !== 304);
        const bytes = Buffer.from(`HTTP/1.1 ${status} Any\r\nServer: s\r\n${text}`, 'latin1');
        expect(shown(read(cutAt(bytes, cuts)))).toEqual({ status, body, end, surplus: false });
      }),
      { numRuns: 1_000 },
    );
  });

  it('are read or rejected the same with changed bytes, however they are cut', () => {
    const changes = fc.array(
      fc.tuple(fc.nat({ max: 600 }), fc.constantFrom(0, 10, 13, 32, 44, 45, 48, 58, 59, 97, 255)),
      {
        minLength: 1,
        maxLength: 4,
      },
    );
    fc.assert(
      fc.property(answer, changes, places, ([status, { text }], edits, cuts) => {
        const bytes = Buffer.from(`HTTP/1.1 ${status} Any\r\nServer: s\r\n${text}`, 'latin1');
        for (const [place, byte] of edits) bytes[place % bytes.length] = byte;
        expect(shown(read(cutAt(bytes, cuts)))).toEqual(shown(read([bytes])));
      }),
      { numRuns: 2_000 },
    );
  });
});
