import { z } from 'zod';
import { idText, unixSeconds } from './fields.ts';
import { decimal } from './wallet.ts';

/** Answers of `/v1/wallet/statements` and `/v1/statement-key`. */

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
