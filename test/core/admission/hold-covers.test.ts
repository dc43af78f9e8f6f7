import { expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createMemoryAdmission, takeHold } from '#core/admission/admission.ts';
import type { Admission, Extension } from '#core/admission/contract/types.ts';
import { demandFor } from './hold-demand.ts';

/** The prompt was held for by its bytes and came to more. */

const picoPerMicro = 1_000_000n;

function admissionThatExtendsBy(extension: () => Promise<Extension>): Admission {
  const admission = createMemoryAdmission({
    loadBalance: () => Promise.resolve({ balancePicoUsd: 10n ** 15n, charged: [] }),
    loadTokens: () => Promise.resolve({ tokens: 0, counted: [] }),
    onCredit: () => undefined,
    clock: systemClock,
  });
  return Object.assign(admission, { extend: extension });
}

const partThen = (rest: Extension): (() => Promise<Extension>) => {
  const answers: Extension[] = [700n, rest];
  return () => Promise.resolve(answers.shift() ?? null);
};

it.each<[string, () => Promise<Extension>, bigint]>([
  ['its hold, where the wallet has nothing more', () => Promise.resolve(0n), 0n],
  ['its hold and a part of the rest, where the wallet has nothing more then', partThen(0n), 700n],
  ['what it costs, where nobody knows whether the wallet has more than a part of the rest', partThen(null), 2000n],
  ['what it costs, where nobody knows whether the wallet has more', () => Promise.resolve(null), 2000n],
  ['what it costs, where that cannot be asked', () => Promise.reject(new Error('no connection')), 2000n],
])('charges at most %s', async (_, extension, moreMicroUsd) => {
  const grant = await takeHold(admissionThatExtendsBy(extension), demandFor(uuidv7(), 'chat', 1n, false));
  if (!grant.ok) throw new Error(grant.code);
  const { hold } = grant;
  const cost = (grant.heldMicroUsd + 2000n) * picoPerMicro;
  await hold.cover(cost);
  const charged = cost < hold.chargeMaxPicoUsd ? cost : hold.chargeMaxPicoUsd;
  expect(charged).toBe((grant.heldMicroUsd + moreMicroUsd) * picoPerMicro);
});

it('asks for one more turn only while a stream of many turns is unread', async () => {
  const asked: bigint[] = [];
  const admission = Object.assign(
    admissionThatExtendsBy(() => Promise.resolve(0n)),
    {
      extend: (_: unknown, microUsd: bigint) => {
        asked.push(microUsd);
        return Promise.resolve(microUsd);
      },
    },
  );
  const demand = demandFor(uuidv7(), 'chat', 1n, true);
  const { contextLength } = demand.size;
  const grant = await takeHold(admission, {
    ...demand,
    size: { ...demand.size, turns: 128, turnsPossible: 128, isLimitKept: false },
  });
  if (!grant.ok) throw new Error(grant.code);
  expect(await grant.hold.coverTurn(50)).toBe(true);
  const most = BigInt(50 + contextLength + contextLength);
  expect(asked.reduce((sum, one) => sum + one, 0n)).toBeLessThanOrEqual(most);
  expect(asked.reduce((sum, one) => sum + one, grant.heldMicroUsd)).toBeGreaterThanOrEqual(BigInt(50 + contextLength));
});

it('covers a whole answer of one turn, where its engine could take more', async () => {
  let leftMicroUsd = 0n;
  const admission = Object.assign(
    admissionThatExtendsBy(() => Promise.resolve(0n)),
    {
      extend: (_: unknown, microUsd: bigint) => {
        const given = microUsd < leftMicroUsd ? microUsd : leftMicroUsd;
        leftMicroUsd -= given;
        return Promise.resolve(given);
      },
    },
  );
  const demand = demandFor(uuidv7(), 'responses', 1n, true);
  const size = { ...demand.size, outputTokensAsked: null, turnsPossible: 128, isLimitKept: false };
  const grant = await takeHold(admission, { ...demand, size });
  if (!grant.ok) throw new Error(grant.code);
  const { hold } = grant;
  // The wallet has exactly what 10 tokens of prompt and a full context cost.
  leftMicroUsd = BigInt(10 + demand.size.contextLength) - grant.heldMicroUsd;
  const uncovered: number[] = [];
  for (let likelyTokens = 0; likelyTokens <= demand.size.contextLength; likelyTokens += 100) {
    if (!hold.covers({ inputTokens: 10, cachedTokens: 0, likelyTokens })) uncovered.push(likelyTokens);
    await Promise.resolve();
  }
  expect(uncovered).toEqual([]);
});
