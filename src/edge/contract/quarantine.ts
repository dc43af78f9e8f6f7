import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/admin/quarantine`. */

const listedFields = {
  id: z.string().meta({ description: 'Id of the request' }),
  object: z.literal('quarantined_record'),
  organization_id: idText('org').nullable(),
  error: z.string().meta({ description: 'Error message of PostgreSQL' }),
  sql_state: z.string().nullable().meta({ description: 'SQLSTATE of the error; null if there is none' }),
  created_at: unixSeconds.meta({ description: 'When PostgreSQL rejected the record, in Unix seconds' }),
};

/** A usage record that PostgreSQL rejected. */
const quarantinedRecordSchema = z.object(listedFields).meta({ id: 'QuarantinedRecord' });

/** A rejected record with its content. */
export const wholeQuarantinedRecordSchema = z
  .object({ ...listedFields, record: z.unknown().meta({ description: 'Record as JSON; base64 if it is not JSON' }) })
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
