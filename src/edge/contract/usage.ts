import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/usage/summary`. */

const tokens = z.int().min(0).meta({ description: 'Number of tokens' });

const sumFields = {
  num_model_requests: z.int().meta({ description: 'Number of admitted requests with any outcome' }),
  outcomes: z.object({ completed: z.int(), aborted: z.int(), ended: z.int(), failed: z.int() }).meta({
    description: 'Numbers of admitted requests by outcome. `aborted`: the client left. `ended`: by the gateway',
  }),
  refusals: z.record(z.string(), z.int()).meta({ description: 'Numbers of rejected requests by error code' }),
  input_tokens: tokens,
  input_cached_tokens: tokens.meta({ description: 'Part of `input_tokens` that engines had cached' }),
  output_tokens: tokens,
  output_reasoning_tokens: tokens.meta({ description: 'Part of `output_tokens` that was reasoning' }),
  cost: z.string().meta({ example: '12.5', description: 'USD charged, exact decimal' }),
};

/** Sums of requests, tokens and cost. */
const sumsSchema = z.object(sumFields).meta({ id: 'UsageSums' });

const percentiles = (what: string) =>
  z
    .object({ requests: z.int(), p50: z.number(), p95: z.number(), p99: z.number() })
    .nullable()
    .meta({ description: `${what}; percentiles are at most 4.5 % off. Null if no request has one` });

const latencySchema = z
  .object({
    first_byte_ms: percentiles('Milliseconds until the first token of streamed responses'),
    tokens_per_second: percentiles('Output tokens per second of streamed responses, after the first'),
    queued_ms: percentiles('Milliseconds that requests waited for capacity'),
  })
  .meta({ id: 'UsageLatency', description: 'Without cached responses. Absent unless `latency=true`' });

const groupSchema = z
  .object({
    key_id: idText('key').optional(),
    model: z
      .string()
      .nullable()
      .optional()
      .meta({ description: 'Null for requests rejected before the model was known' }),
    project_id: idText('proj').optional(),
    day: z.string().optional().meta({ example: '2026-11-21', description: 'UTC day' }),
    hour: z.int().optional().meta({ description: 'Start of the hour in Unix seconds' }),
    latency: latencySchema.optional(),
    ...sumFields,
  })
  .meta({ id: 'UsageSummaryGroup' });

const bound = z.number().meta({ description: 'Seconds since the Unix epoch', example: 1_790_000_000 });

/** Sums by group, and in total. */
export const usageSummarySchema = z
  .object({
    object: z.literal('usage.summary'),
    from: bound,
    to: bound,
    data: z.array(groupSchema),
    totals: sumsSchema,
  })
  .meta({ id: 'UsageSummary' });

export type SumsAnswer = z.infer<typeof sumsSchema>;
export type UsageSummaryAnswer = z.infer<typeof usageSummarySchema>;
export type UsageGroupAnswer = UsageSummaryAnswer['data'][number];

/** Answers of `/v1/admin/quarantine`. */

const quarantinedFields = {
  id: z.string().meta({ description: 'Id of the request' }),
  object: z.literal('quarantined_record'),
  organization_id: idText('org').nullable(),
  error: z.string().meta({ description: 'Error message of PostgreSQL' }),
  sql_state: z.string().nullable().meta({ description: 'SQLSTATE of the error; null if there is none' }),
  created_at: unixSeconds.meta({ description: 'When PostgreSQL rejected the record, in Unix seconds' }),
};

/** A usage record that PostgreSQL rejected. */
const quarantinedRecordSchema = z.object(quarantinedFields).meta({ id: 'QuarantinedRecord' });

/** A rejected record with its content. */
export const wholeQuarantinedRecordSchema = z
  .object({
    ...quarantinedFields,
    record: z.unknown().meta({ description: 'Record as JSON; base64 if it is not JSON' }),
  })
  .meta({ id: 'WholeQuarantinedRecord' });

/** A rejected record that is recorded now. */
export const bookedRecordSchema = z
  .object({
    id: z.string(),
    object: z.literal('quarantined_record'),
    booked: z.literal(true),
    charged: z.string().meta({ example: '0.00042', description: 'USD charged, exact decimal' }),
  })
  .meta({ id: 'BookedQuarantinedRecord' });

/** A rejected record that was discarded. */
export const discardedRecordSchema = z
  .object({ id: z.string(), object: z.literal('quarantined_record'), discarded: z.literal(true) })
  .meta({ id: 'DiscardedQuarantinedRecord' });

/** A page of rejected records. */
export const quarantinedRecordListSchema = listOf(quarantinedRecordSchema, 'QuarantinedRecordList');

export type QuarantinedRecordAnswer = z.infer<typeof quarantinedRecordSchema>;
