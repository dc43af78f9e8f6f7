/**
 * Contents of requests that are stored besides their records: bodies and answers for keys that enable storing, and
 * answers of requests with an Idempotency-Key. The latter are kept for a day, or for requests of a batch until its end.
 * The rest of the gateway stores no content.
 */
export { BoundedAsking } from './circuit-breaker.ts';
export { compress, decompress } from './compress.ts';
export { type Content, type ContentRef, type Contents, type ContentsOptions, createContents } from './contents.ts';
export type { NewContent } from './content-writer.ts';
export {
  type Claim,
  type ClaimResult,
  type Idempotency,
  type IdempotencyOptions,
  type IdempotentRun,
  type KeptAnswer,
  type Settling,
  createIdempotency,
  type SharedEnd,
} from './idempotency.ts';
export { answeredMeanwhile, createReceipts, type Receipt, type Receipts } from './receipts.ts';
export {
  carriedAnswerBytesMax,
  type ClaimOf,
  claimsParameter,
  claimsText,
  isLarge,
  isOfAnotherTime,
  ownKeyMark,
  putAnswer,
  putClaims,
  type SettledClaim,
} from './settled-claims.ts';
