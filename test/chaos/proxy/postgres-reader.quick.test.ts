import { describe, expect, it } from 'vitest';
import type { Piece } from './fault-proxy.ts';
import { type Answered, createPostgresReader, type Fate } from './postgres-reader.ts';

const message = (type: string, body: string): Buffer => {
  const bytes = Buffer.alloc(5 + Buffer.byteLength(body));
  bytes.write(type, 'latin1');
  bytes.writeInt32BE(bytes.length - 1, 1);
  bytes.write(body, 5);
  return bytes;
};

const startup = Buffer.concat([Buffer.from([0, 0, 0, 9]), Buffer.from('abcde')]);
const ready = message('Z', 'I');
const done = message('C', 'INSERT 0 1\0');

/** A connection that has been opened. */
function opened(judge: (answered: Answered) => Fate): ReturnType<typeof createPostgresReader> {
  const reader = createPostgresReader(judge);
  reader.toServer(startup);
  reader.toClient(Buffer.concat([message('R', '\0\0\0\0'), ready]));
  return reader;
}

const textOf = (pieces: readonly Piece[]): string =>
  pieces.map((piece) => (piece.kind === 'bytes' ? piece.bytes.toString('latin1') : piece.kind)).join('');

describe('the reader of the PostgreSQL protocol', () => {
  it('passes the messages before a server is ready', () => {
    const reader = createPostgresReader(() => 'lose');
    reader.toServer(startup);
    const asked = message('R', '\0\0\0\u0005');
    expect(textOf(reader.toClient(asked))).toBe(asked.toString('latin1'));
    expect(textOf(reader.toClient(ready))).toBe(ready.toString('latin1'));
  });

  it('identifies statements by their text, also prepared ones', () => {
    const told: Answered[] = [];
    const reader = opened((answered) => {
      told.push(answered);
      return 'pass';
    });
    reader.toServer(message('Q', 'begin\0'));
    reader.toClient(message('Z', 'T'));
    const parse = message('P', 's1\0insert into t\0\0\0');
    const bind = message('B', '\0s1\0\0\0');
    const [execute, sync] = [message('E', '\0\0\0\0\0'), message('S', '')];
    reader.toServer(Buffer.concat([parse, bind, execute, sync]));
    reader.toClient(Buffer.concat([done, message('Z', 'T')]));
    reader.toServer(Buffer.concat([bind, execute, sync]));
    reader.toClient(Buffer.concat([message('E', 'SERROR\0VERROR\0C23505\0\0'), message('Z', 'E')]));
    expect(told).toEqual([
      { text: 'begin', error: null, inTransaction: true },
      { text: 'insert into t', error: null, inTransaction: true },
      { text: 'insert into t', error: '23505', inTransaction: true },
    ]);
  });

  it.each([
    ['lose', 'break'],
    ['swallow', 'silence'],
  ] as const)('holds a response back until it is complete: %s', (fate, kind) => {
    const reader = opened(() => fate);
    reader.toServer(message('Q', 'commit\0'));
    expect(reader.toClient(done)).toEqual([]);
    expect(reader.toClient(ready)).toEqual([{ kind }]);
  });

  it('delays a response', () => {
    const reader = opened(() => 70);
    reader.toServer(message('Q', 'commit\0'));
    const bytes = Buffer.concat([done, ready]);
    expect(reader.toClient(bytes)).toEqual([{ kind: 'bytes', bytes, delayMs: 70 }]);
  });

  it('forwards messages that a client waits for at once, also in pieces', () => {
    const reader = opened(() => 'pass');
    const described = message('T', '\0\0');
    expect(textOf(reader.toClient(described.subarray(0, 3)))).toBe('');
    expect(textOf(reader.toClient(described.subarray(3)))).toBe(described.toString('latin1'));
    const fatal = message('E', 'SFATAL\0VFATAL\0C57P01\0\0');
    expect(textOf(reader.toClient(fatal))).toBe(fatal.toString('latin1'));
  });
});
