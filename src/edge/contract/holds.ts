import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/admin/holds`. */

const heldText = z.string().meta({ example: '0.00042', description: 'USD, exact decimal' });

/** A wallet hold left by a stopped gateway. */
export const holdSchema = z
  .object({
    id: z.string().meta({ description: 'Id of the request' }),
    object: z.literal('hold'),
    organization_id: idText('org'),
    key_id: idText('key'),
    gateway_id: z.string().meta({ description: 'Stopped gateway that admitted the request' }),
    held: heldText,
    spooled: z.boolean().meta({ description: 'true if the usage is in the spool of that gateway, not in PostgreSQL' }),
    created_at: unixSeconds,
  })
  .meta({ id: 'Hold' });

/** A hold that was released. */
export const releasedHoldSchema = z
  .object({ id: z.string(), object: z.literal('hold'), released: z.literal(true), held: heldText })
  .meta({ id: 'ReleasedHold' });

/** A page of holds. */
export const holdListSchema = listOf(holdSchema, 'HoldList');

export type HoldAnswer = z.infer<typeof holdSchema>;
