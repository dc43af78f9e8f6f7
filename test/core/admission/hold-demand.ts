import { randomUUID } from 'node:crypto';
import type { HoldDemand } from '#core/admission/admission.ts';

export const organizationId = randomUUID();
export const projectId = randomUUID();
const key = {
  organizationId,
  keyId: randomUUID(),
  limits: { requestsPerMinute: null, maxConcurrency: null, tokensPerMinute: null, monthlyTokenLimit: null },
};

/**
 * A request of 100 bytes that asks for 1,000 tokens.
 * @param perToken micro-dollars
 * @param follows its hold follows its answer
 */
export const demandFor = (requestId: string, model: string, perToken: bigint, follows: boolean): HoldDemand => ({
  requestId,
  key,
  spender: { organizationId, keyId: key.keyId, projectId, user: null },
  model,
  size: {
    bodyBytes: 100,
    unreadBytes: 0,
    tokenIds: 0,
    isBoundByBytes: true,
    overheadTokens: 0,
    contexts: 1,
    inputs: 'prompts',
    prompts: 1,
    generates: true,
    choices: 1,
    turns: 1,
    turnsPossible: 1,
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
