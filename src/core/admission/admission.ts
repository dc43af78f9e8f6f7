/**
 * Decides whether a request may run, and what it holds: the wallet's holds and the limits of its key, in this process
 * or in Redis. A caller passes the size and price of a request, and gets a grant or the reason for the rejection.
 */
export {
  estimatePromptTokens,
  estimateTokens,
  likelyTokens,
  type Admission,
  type AdmitRefusal,
  type AdmitRequest,
  type AdmitResult,
  type CapRefusal,
  type HardBudget,
  type KeyRef,
  type RequestSize,
  type Settlement,
  type Spender,
} from '#core/admission/contract/contract.ts';
export { createHoldReview, type HoldReview, type OrphanedHold } from '#core/admission/redis/redis.ts';
export { createMemoryAdmission, type MemoryAdmissionOptions } from '#core/admission/memory/memory.ts';
export { createRedisAdmission, type RedisAdmission, type RedisAdmissionOptions } from './redis-admission.ts';
export { readLimitsLeft } from './limits-left.ts';
export { createPromptOverheads, type PromptOverheads } from './prompt-overheads.ts';
export type { RequestHold } from './request-hold.ts';
export {
  type Forecast,
  forecastHold,
  type Grant,
  type HoldDemand,
  type HoldRefusal,
  moveBack,
  moveHold,
  takeHold,
} from './take-hold.ts';
