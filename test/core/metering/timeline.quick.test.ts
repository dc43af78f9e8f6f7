import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { packFacts, type RequestFacts, unpackFacts } from '#core/metering/tables/facts.ts';
import { timelineOf } from '#core/metering/reports/timeline.ts';
import { recordOf } from '#test/metering/recorded-usage.ts';

const ms = fc.oneof(fc.nat(200), fc.nat(100_000_000));
const left = fc.option(fc.oneof(fc.nat(300), fc.maxSafeNat()));
const id = fc.oneof(fc.stringMatching(/^[0-9a-f]{6}-[0-9a-f]{8}$/), fc.string({ maxLength: 20 }));

const facts: fc.Arbitrary<RequestFacts> = fc.record({
  admittedMs: ms,
  coldMs: ms,
  remaining: fc.record({ requests: left, tokens: left, monthTokens: left, concurrency: left }),
  replica: fc.option(fc.record({ id, ageSeconds: fc.option(ms) })),
});

const committed = (value: number): Buffer => Buffer.from([value >> 16, (value >> 8) & 255, value & 255]);
const organization = { id: 'a', keyId: 'b', projectId: 'c' };

describe('the facts of a request', () => {
  it('are unchanged after packing and unpacking', () => {
    fc.assert(
      fc.property(facts, fc.nat(16_777_215), (known, committedMs) => {
        const stored = unpackFacts(Buffer.concat([packFacts(known), committed(committedMs)]));
        expect(stored).toEqual({ ...known, committedMs });
      }),
    );
  });

  it('are null for bytes that are not facts, and unpack any bytes without an error', () => {
    expect(unpackFacts(Buffer.alloc(0))).toBeNull();
    expect(unpackFacts(Buffer.from([0, 0, 0]))).toBeNull();
    fc.assert(fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => void unpackFacts(Buffer.from(bytes))));
  });

  it('of an ordinary request take less than twenty bytes', () => {
    const remaining = { requests: 59, tokens: null, monthTokens: null, concurrency: 9 };
    const replica = { id: 'd4e5f6-0a1b2c3d', ageSeconds: 86_400 };
    expect(packFacts({ admittedMs: 2, coldMs: 0, remaining, replica }).length + 3).toBeLessThan(20);
  });
});

describe('a timeline', () => {
  it('adds up to the total and commit times, with no negative part', () => {
    const times = fc.record({ queuedMs: ms, firstByteMs: fc.option(ms), totalMs: ms });
    fc.assert(
      fc.property(facts, times, fc.nat(100_000), (known, fields, committedMs) => {
        const record = recordOf(organization, 0, fields);
        const parts = Object.values(timelineOf(record, { ...known, committedMs })) as (number | null)[];
        expect(parts.every((part) => part === null || part >= 0)).toBe(true);
        expect(parts.reduce<number>((sum, part) => sum + (part ?? 0), 0)).toBe(fields.totalMs + committedMs);
      }),
    );
  });

  it('names each part', () => {
    const record = recordOf(organization, 0, { queuedMs: 2100, firstByteMs: 2500, totalMs: 4000 });
    const remaining = { requests: null, tokens: null, monthTokens: null, concurrency: null };
    expect(timelineOf(record, { admittedMs: 12, coldMs: 2000, remaining, replica: null, committedMs: 7 })).toEqual({
      admittedMs: 12,
      queuedMs: 100,
      coldStartMs: 2000,
      firstByteMs: 388,
      lastByteMs: 1500,
      committedMs: 7,
    });
  });
});
