import { z } from 'zod';
import { usageSources } from '#core/metering/meters/meters.ts';
import { carriedAnswerBytesMax, type SettledClaim } from '#core/stored-requests/stored-requests.ts';
import type { UsageRecord } from './record.ts';

/** Schema parts of a spool file. A later version reads files that an earlier one wrote. */
const count = z.number().int().nonnegative();
const pico = z.string().regex(/^\d+$/).transform(BigInt);

const base64 = z.string().transform((text) => Buffer.from(text, 'base64'));

const claim = z.strictObject({
  keyId: z.string(),
  idempotencyKey: z.string(),
  bodyHash: base64,
  expiresAt: z.string(),
  keeps: z.boolean(),
  answer: base64.nullable(),
});

const left = count.nullable();

const facts = z.strictObject({
  admittedMs: z.number(),
  coldMs: z.number(),
  remaining: z.strictObject({ requests: left, tokens: left, monthTokens: left, concurrency: left }),
  replica: z.strictObject({ id: z.string(), ageSeconds: z.number().nullable() }).nullable(),
});

/** Schema of a record. Version 1 has no `claim` and no `facts`. */
const spooled = z
  .strictObject({
    version: z.union([z.literal(1), z.literal(2)]),
    id: z.string(),
    organizationId: z.string(),
    projectId: z.string(),
    keyId: z.string(),
    model: z.string(),
    endpoint: z.string(),
    stream: z.boolean(),
    serviceTier: z.enum(['default', 'flex']),
    status: z.number(),
    outcome: z.enum(['completed', 'aborted', 'ended', 'failed']),
    reason: z.string().nullable(),
    cacheHit: z.boolean(),
    usage: z.strictObject({
      inputTokens: count,
      cachedTokens: count,
      cacheWriteTokens: count.default(0),
      outputTokens: count,
      reasoningTokens: count,
    }),
    usageSource: z.enum(usageSources),
    costPicoUsd: pico,
    writtenOffPicoUsd: pico,
    priceVersionId: z.string(),
    queuedMs: z.number(),
    firstByteMs: z.number().nullable(),
    totalMs: z.number(),
    clientRequestId: z.string().nullable(),
    endUser: z.string().optional(),
    namedUser: z.string().optional(),
    choices: z.number().int().positive().optional(),
    fallbackFor: z.string().optional(),
    promptTokensMax: count.optional(),
    completionTokensMax: count.optional(),
    claim: claim.optional(),
    facts: facts.optional(),
    waitedMs: z.number().optional(),
  })
  .transform(
    ({
      version: _version,
      claim: claimed,
      choices,
      endUser,
      namedUser,
      fallbackFor,
      promptTokensMax,
      completionTokensMax,
      facts: known,
      waitedMs,
      ...record
    }) => ({
      ...record,
      ...(endUser !== undefined && { endUser }),
      ...(namedUser !== undefined && { namedUser }),
      ...(fallbackFor !== undefined && { fallbackFor }),
      ...(choices !== undefined && { choices }),
      ...(promptTokensMax !== undefined && { promptTokensMax }),
      ...(completionTokensMax !== undefined && { completionTokensMax }),
      ...(claimed !== undefined && { claim: claimed }),
      ...(known !== undefined && { facts: known }),
      ...(waitedMs !== undefined && { waitedMs }),
    }),
  );

/**
 * Returns a record as JSON, without the answer. Amounts are text, since a JSON number would lose their digits. The
 * Idempotency-Key stays: whenever the record is written, a request that repeats the key is not charged as well.
 */
export function recordJson({ claim: claimed, ...record }: UsageRecord): string {
  const claimJson = claimed === undefined ? {} : { claim: claimFields({ ...claimed, answer: null }) };
  return JSON.stringify({ ...fieldsOf(record), ...claimJson });
}

/**
 * Returns the record's JSON without its Idempotency-Key, which is private to its client; text that is not JSON stays as
 * it is.
 */
export function shownRecordJson(text: string): string {
  try {
    const { claim: _claim, ...shown } = JSON.parse(text) as Record<string, unknown>;
    return JSON.stringify(shown);
  } catch {
    return text;
  }
}

function fieldsOf({ settledMs: _settled, ...record }: Omit<UsageRecord, 'claim'>) {
  const { costPicoUsd, writtenOffPicoUsd } = record;
  const amounts = { costPicoUsd: costPicoUsd.toString(), writtenOffPicoUsd: writtenOffPicoUsd.toString() };
  return { version: 2, ...record, ...amounts };
}

/**
 * Returns a claim's fields without an answer that is too large. The request is still billed once, and a repeat gets an
 * error that says so.
 */
function claimFields({ bodyHash, answer, ...fields }: SettledClaim) {
  const kept = answer === null || answer.length > carriedAnswerBytesMax ? null : answer.toString('base64');
  return { ...fields, bodyHash: bodyHash.toString('base64'), answer: kept };
}

/** @param nowMs time of the same clock as `settledMs` */
export function encodeRecord({ claim: claimed, ...record }: UsageRecord, nowMs: number): Buffer {
  const { settledMs = nowMs, waitedMs = nowMs - settledMs } = record;
  const fields = { ...fieldsOf(record), waitedMs };
  return Buffer.from(JSON.stringify(claimed === undefined ? fields : { ...fields, claim: claimFields(claimed) }));
}

/** @throws SyntaxError or ZodError if the bytes are not a record that this version knows */
export function decodeRecord(data: Buffer): UsageRecord {
  return spooled.parse(JSON.parse(data.toString()));
}
