import { beforeEach, expect, it } from 'vitest';
import type { Spent } from '#core/admission/contract/types.ts';
import type { OwnHold } from '#core/admission/redis/own-hold.ts';
import { leftOfPart, OutageBudgets } from '#core/admission/outage/budgets.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** The rest of a budget while Redis is silent, by the ledger and by the requests that run here. */

const organizationId = 'one';
const spending = { type: 'api_key', id: 'key', period: 'daily', fromMs: 0, toMs: 86_400_000 } as const;
const budget = {
  budgetId: 'budget',
  slot: 'slot',
  spending,
  amountMicroUsd: 100n,
  allowedPicoUsd: 0n,
  forgivenPicoUsd: 0n,
};
const holdOf = (heldMicroUsd: bigint): OwnHold => ({
  organizationId,
  keyId: 'key',
  tokensPerMinute: null,
  spender: undefined,
  slots: ['slot'],
  formerSlots: [],
  modelId: undefined,
  model: null,
  beganMs: 0,
  estimatedTokens: 1,
  reservedTokens: 1,
  heldMicroUsd,
  isSpooled: false,
  isSettled: false,
  standing: 'registered',
  isRaised: false,
});

it.each([
  ['has not', [], 30n],
  ['has', ['ended'], 70n],
])('counts a request that ends during the read of a budget once, when the answer %s it', async (_, counted, left) => {
  const holds = new Map([['ended', holdOf(40n)]]);
  const answer = Promise.withResolvers<Spent>();
  const options = {
    books: { spent: () => answer.promise, gateways: () => Promise.resolve(1) },
    leases: { holdsOf: () => new Map(holds), heldOfSlot: () => 0n },
    known: { budget: () => null, isBudgetHeard: () => false },
  };
  const budgets = new OutageBudgets(options, null);
  const reading = budgets.read(organizationId, [budget]);
  holds.delete('ended');
  answer.resolve({ picoUsd: 30_000_000n, counted });
  const [part] = await reading;
  if (part === undefined) throw new Error('a budget has no part');
  expect(leftOfPart(part)).toBe(left);
});
