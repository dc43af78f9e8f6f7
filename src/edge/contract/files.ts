import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { cursorPageOf } from './lists.ts';

/** Answers of `/v1/files`. */

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
