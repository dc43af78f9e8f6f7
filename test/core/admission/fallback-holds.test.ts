import { randomUUID } from 'node:crypto';
import { expect, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { uuidv7 } from '#base/id.ts';
import { createMemoryAdmission, type HoldDemand, moveHold, takeHold } from '#core/admission/admission.ts';
import type { ProjectLimit } from '#core/admission/contract.ts';

/** What is held for a request while models are asked one after the other. */

const organizationId = randomUUID();
const projectId = randomUUID();
const key = {
  organizationId,
  keyId: randomUUID(),
  limits: { requestsPerMinute: null, maxConcurrency: null, tokensPerMinute: null, monthlyTokenLimit: null },
};
const usedUp: ProjectLimit = {
  slot: randomUUID(),
  projectId,
  model: 'dear',
  limits: { requestsPerMinute: 1, tokensPerMinute: null, requestsPerDay: null },
};

const demandFor = (requestId: string, model: string, perToken: bigint, follows: boolean): HoldDemand => ({
  requestId,
  key,
  spender: { organizationId, keyId: key.keyId, projectId, user: null },
  model,
  size: {
    bodyBytes: 100,
    unreadBytes: 0,
    isBoundByBytes: true,
    overheadTokens: 0,
    contexts: 1,
    inputs: 'prompts',
    prompts: 1,
    choices: 1,
    outputTokensAsked: 1000,
    isLimitKept: true,
    outputTokensDefault: null,
    contextLength: 8000,
  },
  price: {
    inputPerMTokMicroUsd: perToken * 1_000_000n,
    cachedInputPerMTokMicroUsd: perToken * 1_000_000n,
    outputPerMTokMicroUsd: perToken * 1_000_000n,
  },
  capPicoUsd: null,
  extends: follows,
});

it.each([[false], [true]])(
  'is what the model wants that answers, however many were passed over before, stream %s',
  async (follows) => {
    const admission = createMemoryAdmission({
      loadBalance: () => Promise.resolve({ balancePicoUsd: 10n ** 15n, charged: [] }),
      loadTokens: () => Promise.resolve({ tokens: 0, counted: [] }),
      onCredit: () => undefined,
      projectLimits: { of: (_, model) => (model === 'dear' ? usedUp : null) },
      clock: systemClock,
    });
    const other = await takeHold(admission, demandFor(uuidv7(), 'dear', 1n, follows));
    if (!other.ok) throw new Error(other.code);
    const before = await admission.heldMicroUsd(organizationId);
    const requestId = uuidv7();
    const grant = await takeHold(admission, demandFor(requestId, 'cheap', 1n, follows));
    if (!grant.ok) throw new Error(grant.code);
    const passed = await moveHold(admission, grant, demandFor(requestId, 'dear', 5n, follows));
    expect(passed.ok).toBe(false);
    const served = await moveHold(admission, grant, demandFor(requestId, 'dearest', 8n, follows), passed.heldMicroUsd);
    if (!served.ok) throw new Error('another model was passed over');
    const held = (await admission.heldMicroUsd(organizationId)) - before;
    expect(served.heldMicroUsd).toBe(held);
    const alone = await takeHold(admission, demandFor(uuidv7(), 'dearest', 8n, follows));
    expect(alone).toMatchObject({ ok: true, heldMicroUsd: held });
  },
);
