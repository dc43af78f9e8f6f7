import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/wallet`. */

/** An amount in USD. */
export const decimal = z.string().meta({ example: '9.99958', description: 'USD, exact decimal' });

/** An entry of the ledger. */
export const ledgerEntrySchema = z
  .object({
    id: idText('le'),
    object: z.literal('ledger_entry'),
    type: z
      .enum(['credit', 'usage', 'adjustment'])
      .meta({ description: '`usage`: charge for a request. `adjustment`: correction by a platform administrator' }),
    amount: decimal.meta({ description: 'USD added to the balance, exact decimal; negative for usage' }),
    balance_after: decimal.meta({ description: 'Balance after this entry in USD, exact decimal' }),
    request_id: z.string().nullable().meta({ description: 'Id of the charged request; null for other entries' }),
    requests: z.int().nullable().meta({
      description: 'Number of charged requests: 1, or more if their records are no longer kept; null for other entries',
    }),
    reference: z.string().nullable().meta({ description: 'Your reference, unique in the wallet; null for usage' }),
    note: z.string().nullable().meta({ description: 'Note of a credit, or reason of an adjustment' }),
    created_at: unixSeconds,
  })
  .meta({ id: 'LedgerEntry' });

/** The balance of an organization. */
export const walletSchema = z
  .object({
    object: z.literal('wallet'),
    balance: decimal,
    held: decimal.meta({ description: 'USD held for running requests, exact decimal' }),
    available: decimal.meta({ description: '`balance` minus `held` in USD, exact decimal' }),
    currency: z.literal('USD'),
  })
  .meta({ id: 'Wallet' });

/** A page of the ledger. */
export const ledgerEntryListSchema = listOf(ledgerEntrySchema, 'LedgerEntryList');

export type WalletAnswer = z.infer<typeof walletSchema>;
export type LedgerEntryAnswer = z.infer<typeof ledgerEntrySchema>;

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
