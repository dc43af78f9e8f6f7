import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PICO_PER_MICRO } from '#base/money.ts';
import {
  holdForJson,
  holdForStream,
  type HoldRefused,
  STREAM_OUTPUT_TOKENS_AHEAD,
  type TokenPrice,
} from '#core/wallet/wallet.ts';

const priceOf = (input: bigint, output: bigint, cached = 0n): TokenPrice => ({
  inputPerMTokMicroUsd: input,
  cachedInputPerMTokMicroUsd: cached,
  outputPerMTokMicroUsd: output,
});

/** 1 USD per million input tokens and 2 USD per million output tokens: 1 and 2 micro-dollars per token. */
const price = priceOf(1_000_000n, 2_000_000n);
const request = { availableMicroUsd: 10_000n, promptTokensMax: 100n, choices: 1n, price };

const priceMicroUsd = fc.oneof(fc.constant(0n), fc.bigInt(1n, 50n), fc.bigInt(1n, 200_000_000n));
const requests = fc.record({
  availableMicroUsd: fc.oneof(fc.bigInt(-10n, 50n), fc.bigInt(0n, 5_000_000n), fc.bigInt(0n, 10n ** 15n)),
  promptTokensMax: fc.bigInt(0n, 200_000n),
  choices: fc.bigInt(1n, 8n),
  price: fc
    .tuple(priceMicroUsd, priceMicroUsd, priceMicroUsd)
    .map(([input, output, cached]) => priceOf(input, output, cached)),
});
const limits = fc.oneof(fc.bigInt(0n, 3n), fc.bigInt(0n, 2_000n), fc.bigInt(0n, 1_000_000n));
type HoldInput = typeof requests extends fc.Arbitrary<infer T> ? T : never;

/** The request's highest cost with so many output tokens per choice, whichever part of the prompt is cached. */
function costPicoUsd(input: HoldInput, outputTokens: bigint): bigint {
  const { inputPerMTokMicroUsd: fresh, cachedInputPerMTokMicroUsd: cached, outputPerMTokMicroUsd } = input.price;
  const promptPicoUsd = input.promptTokensMax * (fresh > cached ? fresh : cached);
  return promptPicoUsd + input.choices * outputTokens * outputPerMTokMicroUsd;
}

const availablePicoUsd = (input: HoldInput): bigint => input.availableMicroUsd * PICO_PER_MICRO;

/** Only requests above the available amount are rejected, and the needed amount is more than there is. */
function refusedRightly(input: HoldInput, firstTokens: bigint, refusal: HoldRefused): boolean {
  return costPicoUsd(input, firstTokens) > availablePicoUsd(input) && refusal.neededMicroUsd > input.availableMicroUsd;
}

function isStreamHoldSound(input: HoldInput, outputTokensMax: bigint | null): boolean {
  const hold = holdForStream({ ...input, outputTokensMax });
  const limit = outputTokensMax ?? STREAM_OUTPUT_TOKENS_AHEAD;
  const first = limit < 1n ? limit : 1n;
  if (hold.refused) return refusedRightly(input, first, hold);
  return (
    hold.holdMicroUsd <= input.availableMicroUsd &&
    costPicoUsd(input, hold.outputTokens) <= hold.holdMicroUsd * PICO_PER_MICRO &&
    hold.outputTokens >= first &&
    hold.outputTokens <= limit &&
    hold.outputTokens <= STREAM_OUTPUT_TOKENS_AHEAD
  );
}

function isJsonHoldSound(input: HoldInput, outputTokensMax: bigint): boolean {
  const hold = holdForJson({ ...input, outputTokensMax });
  if (hold.refused) return refusedRightly(input, outputTokensMax < 1n ? outputTokensMax : 1n, hold);
  const oneMorePicoUsd = costPicoUsd(input, hold.outputTokensMax + 1n);
  const most = !hold.cut || (hold.outputTokensMax >= 1n && oneMorePicoUsd > availablePicoUsd(input));
  return (
    most &&
    hold.cut === hold.outputTokensMax < outputTokensMax &&
    hold.holdMicroUsd <= input.availableMicroUsd &&
    costPicoUsd(input, hold.outputTokensMax) <= hold.holdMicroUsd * PICO_PER_MICRO
  );
}

describe('a hold for a stream', () => {
  it('is rejected with the cost of the prompt and one token per choice when available is less', () => {
    const poor = { ...request, availableMicroUsd: 103n, choices: 2n, outputTokensMax: null };
    expect(holdForStream(poor)).toEqual({ refused: true, neededMicroUsd: 104n });
    expect(holdForStream({ ...poor, availableMicroUsd: 104n })).toEqual({
      refused: false,
      holdMicroUsd: 104n,
      outputTokens: 1n,
    });
  });

  it('is rejected for a balance below zero, also with a free model', () => {
    const free = { ...request, price: priceOf(0n, 0n), outputTokensMax: null };
    expect(holdForStream({ ...free, availableMicroUsd: -1n })).toEqual({ refused: true, neededMicroUsd: 0n });
    expect(holdForStream({ ...free, availableMicroUsd: 0n })).toMatchObject({ refused: false, holdMicroUsd: 0n });
  });

  it('covers the prompt and 512 output tokens per choice', () => {
    const hold = holdForStream({ ...request, choices: 3n, outputTokensMax: null });
    expect(hold).toEqual({ refused: false, holdMicroUsd: 100n + 3n * 1024n, outputTokens: 512n });
  });

  it('covers fewer tokens when the request limits its output', () => {
    const hold = holdForStream({ ...request, outputTokensMax: 16n });
    expect(hold).toEqual({ refused: false, holdMicroUsd: 132n, outputTokens: 16n });
  });

  it('takes all of available when that is less than wanted but pays for one token', () => {
    const hold = holdForStream({ ...request, availableMicroUsd: 201n, outputTokensMax: null });
    expect(hold).toEqual({ refused: false, holdMicroUsd: 201n, outputTokens: 50n });
  });

  it('rounds up to whole micro-dollars', () => {
    const hold = holdForStream({ ...request, price: priceOf(1n, 1n), outputTokensMax: 1n });
    expect(hold).toEqual({ refused: false, holdMicroUsd: 1n, outputTokens: 1n });
  });

  it('never exceeds available, is never rejected if available is enough, and pays for its tokens', () => {
    fc.assert(
      fc.property(requests, fc.option(limits), (input, outputTokensMax) => {
        expect(isStreamHoldSound(input, outputTokensMax)).toBe(true);
      }),
      { numRuns: 2000 },
    );
  });
});

describe('a hold for a JSON answer', () => {
  it('is rejected with the cost of the prompt and one token per choice when available is less', () => {
    const hold = holdForJson({ ...request, availableMicroUsd: 101n, outputTokensMax: 500n });
    expect(hold).toEqual({ refused: true, neededMicroUsd: 102n });
  });

  it('covers the worst case of all choices', () => {
    const hold = holdForJson({ ...request, choices: 2n, outputTokensMax: 700n });
    expect(hold).toEqual({ refused: false, holdMicroUsd: 2_900n, outputTokensMax: 700n, cut: false });
  });

  it('reduces the output limit to what available pays for', () => {
    const hold = holdForJson({ ...request, availableMicroUsd: 505n, choices: 2n, outputTokensMax: 700n });
    expect(hold).toEqual({ refused: false, holdMicroUsd: 504n, outputTokensMax: 101n, cut: true });
  });

  it('covers only the prompt for an endpoint without output', () => {
    const hold = holdForJson({ ...request, availableMicroUsd: 100n, outputTokensMax: 0n });
    expect(hold).toEqual({ refused: false, holdMicroUsd: 100n, outputTokensMax: 0n, cut: false });
    expect(holdForJson({ ...request, availableMicroUsd: 99n, outputTokensMax: 0n })).toEqual({
      refused: true,
      neededMicroUsd: 100n,
    });
  });

  it('never exceeds available, grants the most that available pays for, and pays for its tokens', () => {
    fc.assert(
      fc.property(requests, limits, (input, outputTokensMax) => {
        expect(isJsonHoldSound(input, outputTokensMax)).toBe(true);
      }),
      { numRuns: 2000 },
    );
  });
});
