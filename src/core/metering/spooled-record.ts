import { z } from 'zod';
import type { UsageRecord } from './record.ts';

/** What a file of the spool may have been written by: a later version reads what an earlier one left. */
const count = z.number().int().nonnegative();
const pico = z.string().regex(/^\d+$/).transform(BigInt);

const version1 = z
  .strictObject({
    version: z.literal(1),
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
    usage: z.strictObject({ inputTokens: count, cachedTokens: count, outputTokens: count, reasoningTokens: count }),
    usageSource: z.enum(['engine', 'last_seen', 'none']),
    costPicoUsd: pico,
    writtenOffPicoUsd: pico,
    priceVersionId: z.string(),
    queuedMs: z.number(),
    firstByteMs: z.number().nullable(),
    totalMs: z.number(),
    clientRequestId: z.string().nullable(),
    choices: z.number().int().positive().optional(),
  })
  .transform(({ version: _version, choices, ...record }) => ({ ...record, ...(choices !== undefined && { choices }) }));

/** A record as JSON; amounts as text, since a JSON number would lose their digits. */
export function recordJson(record: UsageRecord): string {
  const { costPicoUsd, writtenOffPicoUsd } = record;
  return JSON.stringify({
    version: 1,
    ...record,
    costPicoUsd: costPicoUsd.toString(),
    writtenOffPicoUsd: writtenOffPicoUsd.toString(),
  });
}

export const encodeRecord = (record: UsageRecord): Buffer => Buffer.from(recordJson(record));

/** @throws SyntaxError or ZodError when it is no record that this version knows */
export function decodeRecord(data: Buffer): UsageRecord {
  return version1.parse(JSON.parse(data.toString()));
}
