import { z } from 'zod';
import { idText, orNull, textOrNull, unixSeconds, unixSecondsOrNull } from './fields.ts';
import { cursorPageOf } from './lists.ts';

/** Answers of `/v1/batches`, and of `/v1/files`, which has their input and output. */

const errorSchema = z.object({
  code: z.string(),
  message: z.string(),
  param: textOrNull(z.string()).meta({ description: 'Field that is wrong; null if the error concerns no field' }),
  line: z
    .int()
    .nullable()
    .meta({ description: 'Line of the input file, counted from 1; null if the error concerns no line' }),
});

/** A batch with its progress. */
export const batchSchema = z
  .object({
    id: idText('batch'),
    object: z.literal('batch'),
    endpoint: z.enum(['/v1/chat/completions', '/v1/completions', '/v1/embeddings', '/v1/responses']),
    model: textOrNull(z.string()).meta({ description: 'Model of all requests; null before validation' }),
    errors: orNull(
      z.object({ object: z.literal('list'), data: z.array(errorSchema) }).meta({ id: 'BatchErrors' }),
    ).meta({
      description: 'Why the batch failed; null without errors',
    }),
    input_file_id: idText('file'),
    completion_window: z.literal('24h'),
    status: z
      .enum(['validating', 'failed', 'in_progress', 'finalizing', 'completed', 'expired', 'cancelling', 'cancelled'])
      .meta({
        description:
          '`validating`: the file is checked. `in_progress`: requests run or wait. `finalizing`, `cancelling`: the ' +
          'output files are written. `failed`: the file is wrong, or its key or model can no longer be used. ' +
          '`expired`: 24 hours passed before all requests ran',
      }),
    output_file_id: textOrNull(z.string()).meta({ description: 'File with the responses; null until it exists' }),
    error_file_id: textOrNull(z.string()).meta({
      description: 'File with the requests that failed; null until it exists',
    }),
    created_at: unixSeconds,
    in_progress_at: unixSecondsOrNull,
    expires_at: unixSeconds,
    finalizing_at: unixSecondsOrNull,
    completed_at: unixSecondsOrNull,
    failed_at: unixSecondsOrNull,
    expired_at: unixSecondsOrNull,
    cancelling_at: unixSecondsOrNull,
    cancelled_at: unixSecondsOrNull,
    request_counts: z
      .object({ total: z.int(), completed: z.int(), failed: z.int() })
      .meta({ description: 'Numbers of requests' }),
    metadata: orNull(z.record(z.string(), z.string())),
    waiting_for: textOrNull(z.string()).meta({
      description: 'Error code of the reason why the batch waits; null if it does not wait',
      example: 'insufficient_funds',
    }),
  })
  .meta({ id: 'Batch' });

/** A page of batches. */
export const batchListSchema = cursorPageOf(batchSchema, 'BatchList');

export type BatchAnswer = z.infer<typeof batchSchema>;

/** A stored file. */
export const fileSchema = z
  .object({
    id: idText('file'),
    object: z.literal('file'),
    bytes: z.int().min(0).meta({ description: 'Size in bytes' }),
    created_at: unixSeconds,
    expires_at: unixSeconds.meta({
      description: 'When the file is deleted, in Unix seconds; earlier if the operator keeps files for less time',
    }),
    filename: z.string(),
    purpose: z
      .enum(['batch', 'batch_output'])
      .meta({ description: '`batch`: input of a batch. `batch_output`: written by a batch' }),
    status: z.literal('processed'),
    status_details: z.null(),
  })
  .meta({ id: 'File' });

/** Confirms a deletion. */
export const deletedFileSchema = z
  .object({ id: idText('file'), object: z.literal('file'), deleted: z.literal(true) })
  .meta({ id: 'DeletedFile' });

/** A page of files. */
export const fileListSchema = cursorPageOf(fileSchema, 'FileList');

export type FileAnswer = z.infer<typeof fileSchema>;
