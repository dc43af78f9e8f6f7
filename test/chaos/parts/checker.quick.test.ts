import { describe, expect, it } from 'vitest';
import type { Books, LedgerRow, UsageRow } from './books.ts';
import { check, type Evidence } from './checker.ts';
import type { Seen } from './client.ts';

/** Defects that the checker of `npm run chaos` must find. */

const id = (number: number): string => `00000000-0000-7000-8000-${String(number).padStart(12, '0')}`;
const organizationId = id(900);

function seenOf(number: number, more: Partial<Seen> = {}): Seen {
  const ask = {
    secret: 'secret',
    stream: true,
    maxTokens: 10,
    standin: {},
    plannedMs: 0,
    leaveMs: null,
    idempotencyKey: null,
    name: `request ${number}`,
  };
  return {
    ask,
    gateway: 0,
    pid: 1000,
    id: id(number),
    status: 200,
    code: null,
    retryAfter: null,
    complete: true,
    replayed: false,
    hasLeft: false,
    inputTokens: 20,
    outputTokens: 10,
    frames: 10,
    remaining: null,
    beganMs: 100,
    headMs: 110,
    endedMs: 200,
    longestGapMs: 10,
    ...more,
  };
}

const cost = 20n * 100_000n + 10n * 400_000n;

function usageOf(number: number, more: Partial<UsageRow> = {}): UsageRow {
  return {
    id: id(number),
    organizationId,
    keyId: id(901),
    projectId: id(902),
    model: 'chat',
    outcome: 'completed',
    reason: null,
    cacheHit: false,
    usageSource: 'engine',
    inputTokens: 20,
    cachedTokens: 0,
    outputTokens: 10,
    cost,
    writtenOff: 0n,
    clientRequestId: `request ${number}`,
    groupId: null,
    ...more,
  };
}

const opening = 10n ** 12n;

function chargeOf(number: number, balanceAfter: bigint, more: Partial<LedgerRow> = {}): LedgerRow {
  const ids = { id: id(500 + number), seq: number + 1, organizationId, requestId: id(number), groupId: null };
  return { ...ids, type: 'usage', change: -cost, balanceAfter, requests: null, ...more };
}

/** Two requests for which everything is as it should be. */
function rightEvidence(): {
  seen: Seen[];
  books: { -readonly [Part in keyof Books]: Books[Part] };
  rest: Omit<Evidence, 'seen' | 'books'>;
} {
  const credit: LedgerRow = { ...chargeOf(0, opening), type: 'credit', change: opening, requestId: null, seq: 1 };
  const name = [organizationId, id(901), id(902), 'chat'].join(' ');
  return {
    seen: [seenOf(1), seenOf(2)],
    books: {
      usage: [usageOf(1), usageOf(2)],
      ledger: [credit, chargeOf(1, opening - cost), chargeOf(2, opening - 2n * cost)],
      wallets: [{ organizationId, balance: opening - 2n * cost }],
      sums: [{ table: 'usage_hourly', name, requests: 2, inputTokens: 40, outputTokens: 20, cost: 2n * cost }],
      quarantined: null,
    },
    rest: {
      counted: new Map([1, 2].map((number) => [id(number), { promptTokens: 20, outputTokens: 10, attempts: 1 }])),
      ends: [],
    },
  };
}

type Right = ReturnType<typeof rightEvidence>;

function problemsOf(change: (right: Right) => void): readonly string[] {
  const right = rightEvidence();
  change(right);
  return check({ seen: right.seen, books: right.books, ...right.rest }).problems;
}

describe('the chaos checker', () => {
  it('finds nothing when answers, ledger and engine counts agree', () => {
    expect(problemsOf(() => undefined)).toEqual([]);
  });

  it.each<[string, RegExp, (right: Right) => void]>([
    [
      'an answer that is not in the books',
      /seen complete and are not in the books/,
      ({ books }) => (books.usage = books.usage.slice(1)),
    ],
    [
      'an answer that is in the books with other tokens',
      /otherwise in the books/,
      ({ seen }) => seen.splice(0, 1, seenOf(1, { outputTokens: 11 })),
    ],
    [
      'a request that is there twice',
      /in the books twice/,
      ({ books }) => (books.usage = [...books.usage, usageOf(2)]),
    ],
    [
      'an Idempotency-Key that was billed twice',
      /billed more than once/,
      ({ seen, books }) => {
        const [first] = seen;
        if (first === undefined) return;
        seen.splice(0, 1, { ...first, ask: { ...first.ask, idempotencyKey: 'key' } });
        books.usage = [usageOf(1), usageOf(2, { clientRequestId: 'request 1' })];
      },
    ],
    [
      'a replay of nothing',
      /replayed whose first request is not in the books/,
      ({ seen }) => seen.push(seenOf(3, { replayed: true })),
    ],
    [
      'a stream that showed more than is billed',
      /showed more than is billed/,
      ({ seen, books }) => {
        seen.splice(0, 1, seenOf(1, { complete: false, hasLeft: true, frames: 10 }));
        books.usage = [usageOf(1, { outcome: 'aborted', outputTokens: 9, cost: cost - 400_000n }), usageOf(2)];
      },
    ],
    [
      'a record that does not cost its tokens',
      /do not cost their tokens/,
      ({ books }) => (books.usage = [usageOf(1, { writtenOff: 1n }), usageOf(2)]),
    ],
    [
      'a record without a charge',
      /not what their records cost/,
      ({ books }) => (books.ledger = books.ledger.filter(({ requestId }) => requestId !== id(2))),
    ],
    [
      'a charge of another amount',
      /not what their records cost/,
      ({ books }) => (books.ledger = books.ledger.map((entry) => ({ ...entry, change: entry.change + 1n }))),
    ],
    [
      'a charge that is there twice',
      /not what their records cost/,
      ({ books }) => (books.ledger = [...books.ledger, chargeOf(2, opening - 3n * cost)]),
    ],
    [
      'a charge of no record',
      /belong to no record/,
      ({ books }) => (books.ledger = [...books.ledger, chargeOf(7, opening - 3n * cost)]),
    ],
    [
      'a balance that the ledger does not prove',
      /not the sum of their ledger/,
      ({ books }) => (books.wallets = [{ organizationId, balance: opening }]),
    ],
    [
      'an entry with another balance after it',
      /not a running sum/,
      ({ books }) => (books.ledger = books.ledger.map((entry) => ({ ...entry, balanceAfter: 5n }))),
    ],
    [
      'a wallet below zero',
      /below zero/,
      ({ books }) => (books.ledger = [...books.ledger, chargeOf(3, -1n, { type: 'adjustment' })]),
    ],
    ['sums that lack a record', /sums are not those/, ({ books }) => (books.sums = [])],
    [
      'sums of no record',
      /sums are not those/,
      ({ books }) => (books.sums = books.sums.flatMap((sum) => [sum, { ...sum, table: 'usage_daily', requests: 3 }])),
    ],
    [
      'more billed than was counted',
      /more than the engine counted/,
      ({ rest }) =>
        void (rest.counted as Map<string, object>).set(id(1), { promptTokens: 20, outputTokens: 9, attempts: 1 }),
    ],
    [
      'less billed than was counted',
      /less than the engine counted/,
      ({ rest }) =>
        void (rest.counted as Map<string, object>).set(id(1), { promptTokens: 20, outputTokens: 11, attempts: 1 }),
    ],
    [
      'work that nobody has on record',
      /with no reason on record/,
      ({ rest }) =>
        void (rest.counted as Map<string, object>).set(id(3), { promptTokens: 20, outputTokens: 9, attempts: 1 }),
    ],
    ['a record in quarantine', /in quarantine/, ({ books }) => (books.quarantined = ['{}'])],
  ])('finds %s', (_what, said, change) => {
    expect(problemsOf(change)).toContainEqual(expect.stringMatching(said));
  });

  it('accepts work without a record only if its gateway was killed meanwhile', () => {
    const lost = (right: Right): void => {
      const counted = right.rest.counted as Map<string, object>;
      counted.set(id(3), { promptTokens: 20, outputTokens: 9, attempts: 1 });
      right.seen.push(seenOf(3, { complete: false, status: 0, id: null }));
    };
    const end = { pid: 1000, atMs: 150, how: 'killed' } as const;
    const withEnd = (right: Right): void => void Object.assign(right.rest, { ends: [end] });
    expect(problemsOf(lost)).not.toEqual([]);
    expect(problemsOf((right) => [lost, withEnd].forEach((change) => change(right)))).toEqual([]);
  });

  it('accepts one ledger entry for a group of requests', () => {
    const grouped = (right: Right, requests: number): void => {
      const [credit] = right.books.ledger;
      if (credit === undefined) return;
      right.books.usage = [usageOf(1, { groupId: '7' }), usageOf(2, { groupId: '7' })];
      const group = { requestId: null, groupId: '7', change: -2n * cost, requests };
      right.books.ledger = [credit, chargeOf(1, opening - 2n * cost, group)];
    };
    expect(problemsOf((right) => grouped(right, 2))).toEqual([]);
    expect(problemsOf((right) => grouped(right, 3))).toContainEqual(
      expect.stringMatching('not what their records cost'),
    );
  });
});
