import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { listOf } from './lists.ts';

/** Answers of `/v1/wallet`, `/v1/wallet/statements` and `/v1/statement-key`. */

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

/** A day of the wallet. */
const walletDaySchema = z
  .object({
    object: z.literal('wallet.day'),
    day: z.string().meta({ example: '2026-10-03', description: 'UTC day' }),
    balance: decimal.meta({ description: 'USD at the end of the day, or now, exact decimal' }),
    credits: decimal.meta({ description: 'USD credited on this day, exact decimal' }),
    adjustments: decimal.meta({ description: 'Sum of adjustments in USD, exact decimal; may be negative' }),
    charges: decimal.meta({ description: 'USD charged on this day, exact decimal' }),
  })
  .meta({ id: 'WalletDay' });

/** The last days of a wallet. */
export const walletDaysSchema = z
  .object({ object: z.literal('list'), data: z.array(walletDaySchema) })
  .meta({ id: 'WalletDayList' });

export type WalletDaysAnswer = z.infer<typeof walletDaysSchema>;
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

/** The statement of a wallet for a month. */
export const statementSchema = z
  .object({
    object: z.literal('wallet.statement'),
    organization_id: idText('org'),
    month: z.string().meta({ example: '2026-10', description: 'Month in UTC' }),
    status: z.enum(['final', 'open']).meta({
      description:
        '`open` until one day after the month. A later spooled request is still added to `usage`; ' +
        'balances and charges no longer change',
    }),
    currency: z.literal('USD'),
    opening_balance: decimal.meta({ description: 'USD at the start of the month, exact decimal' }),
    credits: decimal.meta({ description: 'USD credited in this month, exact decimal' }),
    adjustments: decimal.meta({ description: 'Sum of adjustments in USD, exact decimal; may be negative' }),
    charges: decimal.meta({ description: 'USD charged for requests in this month, exact decimal' }),
    closing_balance: decimal.meta({ description: 'USD at the end of the month, exact decimal' }),
    written_off: decimal
      .nullable()
      .meta({ description: 'Write-offs in USD, exact decimal; null if requests of the month are no longer kept' }),
    requests: z.int().meta({ description: 'Number of requests admitted in this month' }),
    bookings: z
      .array(
        z.object({
          id: idText('le'),
          type: z.enum(['credit', 'adjustment']),
          amount: decimal,
          reference: z.string().nullable(),
          note: z.string().nullable(),
          created_at: unixSeconds,
        }),
      )
      .meta({ description: 'Credits and adjustments of this month' }),
    usage: z
      .array(
        z.object({
          day: z.string().meta({ example: '2026-10-03', description: 'UTC day' }),
          key_id: idText('key'),
          model: z.string(),
          requests: z.int().meta({ description: 'Number of requests' }),
          input_tokens: z.int(),
          output_tokens: z.int(),
          cost: decimal,
        }),
      )
      .meta({
        description:
          'Usage by UTC day of admission, key and model. A request that ends in the next month is charged there',
      }),
    ledger: z
      .object({
        entries: z.int().meta({ description: 'Number of entries' }),
        head: z.string().nullable().meta({ description: 'Hash of the last entry in hex; null without entries' }),
      })
      .meta({ description: 'Ledger at the end of the month, for `headgate verify-books --expect`' }),
    signing_key: z.string().nullable().meta({ description: '`kid` of the signing key; null if unsigned' }),
  })
  .meta({ id: 'WalletStatement' });

export type StatementAnswer = z.infer<typeof statementSchema>;

/** The public key that verifies statements. */
export const statementKeySchema = z
  .object({ kty: z.string(), crv: z.string(), x: z.string(), kid: z.string(), alg: z.string(), use: z.string() })
  .meta({ id: 'StatementKey', description: 'Public key as a JWK (RFC 8037)' });
