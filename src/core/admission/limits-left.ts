import { uuidv7 } from '#base/id.ts';
import type { Admission, KeyRef } from '#core/admission/contract/contract.ts';
import type { LimitsView } from '#core/limits/limits.ts';

/**
 * Returns what a request with the key would find left of each limit, without counting or holding anything. Unlike
 * `view`, which answers for headers, the tokens of the month and the running requests are read too.
 * @param nowMs milliseconds since the Unix epoch
 * @returns null while this is unknown: PostgreSQL or other gateways do not answer, or the key was revoked
 */
export async function readLimitsLeft(
  admission: Pick<Admission, 'check'>,
  key: KeyRef,
  nowMs: number,
): Promise<LimitsView | null> {
  // A request that needs neither money nor tokens: only a limit that is used up rejects it, and then shows the limits.
  const nothing = { neededMicroUsd: 0n, wantedMicroUsd: 0n, estimatedTokens: 0 };
  const result = await admission.check({ ...key, ...nothing, requestId: uuidv7(nowMs) });
  if (result.ok) return result.view;
  return 'limits' in result ? result.limits : null;
}
