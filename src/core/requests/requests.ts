/**
 * What is kept of requests beside their records: bodies and answers for keys that want that, and for a day the answers
 * of requests that carried an Idempotency-Key, of those of a batch until its end. The rest of the gateway keeps no
 * content.
 */
export { compress, decompress } from './compress.ts';
export { type Content, type ContentRef, type Contents, type ContentsOptions, createContents } from './contents.ts';
export type { NewContent } from './content-writer.ts';
export {
  type Claim,
  type ClaimResult,
  type Idempotency,
  type IdempotencyOptions,
  type IdempotentTurn,
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
