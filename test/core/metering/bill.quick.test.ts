import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { billOf, costOf, noUsage, type OutcomeKind, type Served, type UsageSource } from '#core/metering/metering.ts';

const price: Served['price'] = {
  id: 'price',
  modelId: 'model',
  tier: 'default',
  inputPerMTokMicroUsd: 3_000_000n,
  cachedInputPerMTokMicroUsd: 1_000_000n,
  outputPerMTokMicroUsd: 15_000_000n,
  currency: 'USD',
  effectiveFrom: new Date(0),
};
const usage = { inputTokens: 100, cachedTokens: 40, cacheWriteTokens: 0, outputTokens: 7, reasoningTokens: 2 };
const full = costOf(usage, price);

/** A stream that is complete, and paid for. */
const complete: Served = {
  outcome: 'completed',
  usage,
  usageSource: 'engine',
  isPartSent: true,
  generates: true,
  isAtFault: false,
  isWholeOrFree: false,
  price,
  chargeMaxPicoUsd: full,
  ceiling: { promptTokens: 1000n, outputTokens: 1000n },
};
/** An engine failed after some of it was computed. */
const embedding: Partial<Served> = { outcome: 'failed', isPartSent: false, generates: false };
const nothing = { usage: noUsage, costPicoUsd: 0n, writtenOffPicoUsd: 0n };

describe('the bill of a request', () => {
  it.each<[string, Partial<Served>]>([
    ['a JSON answer that failed', { outcome: 'failed', isPartSent: false, usage: noUsage }],
    ['a client that left before the first token', { outcome: 'aborted', usage: { ...usage, outputTokens: 0 } }],
    ['a stream that failed before the first token', { outcome: 'failed', usage: { ...usage, outputTokens: 0 } }],
    ['a gateway that stops before the first token', { outcome: 'ended', usage: { ...usage, outputTokens: 0 } }],
    ['an answer of the response cache', { usage: noUsage, chargeMaxPicoUsd: 0n }],
  ])('is zero for %s', (_, served) => {
    expect(billOf({ ...complete, ...served })).toMatchObject(nothing);
  });

  it.each<[string, Partial<Served>]>([
    ['a complete answer', {}],
    ['a client that left midway', { outcome: 'aborted', isPartSent: false }],
    ['a stream that failed midway', { outcome: 'failed' }],
    ['a stream that was ended midway', { outcome: 'ended', usageSource: 'last_seen' }],
    ['an embedding whose client left', { outcome: 'aborted', isPartSent: false, generates: false }],
    ['a request refused after parts of it were computed', { ...embedding, isAtFault: true }],
  ])('is the whole usage for %s', (_, served) => {
    expect(billOf({ ...complete, ...served })).toMatchObject({ usage, costPicoUsd: full, writtenOffPicoUsd: 0n });
  });

  it('is the prompt for a stream that runs out of money before its first token', () => {
    const counted = { ...usage, outputTokens: 0, reasoningTokens: 0 };
    const bill = billOf({ ...complete, outcome: 'ended', isAtFault: true, usage: counted });
    expect(bill).toMatchObject({ usage: counted, costPicoUsd: costOf(counted, price), writtenOffPicoUsd: 0n });
  });

  it.each<[string, NonNullable<Served['ceiling']>, object]>([
    ['output', { promptTokens: 1000n, outputTokens: 3n }, { outputTokens: 3 }],
    ['prompt', { promptTokens: 70n, outputTokens: 1000n }, { inputTokens: 70 }],
    [
      'cached prompt',
      { promptTokens: 30n, outputTokens: 1000n },
      { inputTokens: 30, cachedTokens: 30, cacheWriteTokens: 0 },
    ],
  ])('ignores a count of the %s beyond the ceiling', (_, ceiling, believed) => {
    const possible = { ...usage, ...believed };
    expect(billOf({ ...complete, ceiling })).toMatchObject({
      usage: possible,
      isCut: true,
      costPicoUsd: costOf(possible, price),
      writtenOffPicoUsd: 0n,
    });
  });

  it.each<[string, Partial<Served>]>([
    ['was ended', { outcome: 'ended' }],
    ['nobody waits for any more', { outcome: 'aborted' }],
    ['is no stream and was ended', { outcome: 'ended', isPartSent: false }],
    ['makes no tokens and was ended', { outcome: 'ended', isPartSent: false, generates: false }],
  ])('writes off a whole-or-nothing answer that %s', (_, served) => {
    const bill = billOf({ ...complete, ...served, isWholeOrFree: true });
    expect(bill).toMatchObject({ usage, costPicoUsd: 0n, writtenOffPicoUsd: full });
  });

  it.each<[string, Partial<Served>]>([
    ['one that makes tokens', { outcome: 'failed', isPartSent: false }],
    ['an embedding', embedding],
    ['one that the stopping gateway ended', { outcome: 'ended', isPartSent: false }],
  ])('writes off an answer that failed before the client got any of it: %s', (_, served) => {
    expect(billOf({ ...complete, ...served })).toMatchObject({ usage, costPicoUsd: 0n, writtenOffPicoUsd: full });
  });

  it('of a whole-or-nothing answer is the full cost when the answer is complete', () => {
    const bill = billOf({ ...complete, isPartSent: false, isWholeOrFree: true });
    expect(bill).toMatchObject({ usage, costPicoUsd: full, writtenOffPicoUsd: 0n });
  });

  it('never exceeds the hold, and includes the written-off amount', () => {
    const count = fc.nat({ max: 1_000_000 });
    const served = fc.record({
      outcome: fc.constantFrom<OutcomeKind>('completed', 'aborted', 'ended', 'failed'),
      usage: fc.record({ inputTokens: count, outputTokens: count }),
      usageSource: fc.constantFrom<UsageSource>('engine', 'last_seen', 'none'),
      isPartSent: fc.boolean(),
      generates: fc.boolean(),
      isAtFault: fc.boolean(),
      isWholeOrFree: fc.boolean(),
      chargeMaxPicoUsd: fc.bigInt({ min: 0n, max: 10n ** 14n }),
      ceiling: fc.record({
        promptTokens: fc.bigInt({ min: 0n, max: 2_000_000n }),
        outputTokens: fc.bigInt({ min: 0n, max: 2_000_000n }),
      }),
    });
    fc.assert(
      fc.property(served, ({ usage: { inputTokens, outputTokens }, ...rest }) => {
        const counted = {
          inputTokens,
          cachedTokens: inputTokens >> 1,
          cacheWriteTokens: 0,
          outputTokens,
          reasoningTokens: 0,
        };
        const bill = billOf({ ...rest, usage: counted, price });
        expect(bill.costPicoUsd).toBeGreaterThanOrEqual(0n);
        expect(bill.costPicoUsd).toBeLessThanOrEqual(rest.chargeMaxPicoUsd);
        expect(bill.costPicoUsd + bill.writtenOffPicoUsd).toBe(costOf(bill.usage, price));
      }),
    );
  });
});
