import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { LedgerLine } from '#core/metering/metering.ts';
import type { LedgerEntry } from '#core/wallet/wallet.ts';
import { idText, toUnixSeconds, unixSeconds } from '#edge/api/shared/shared.ts';

export const decimal = z.string().openapi({ example: '9.99958', description: 'USD, exact decimal' });

export const entrySchema = z
  .object({
    id: idText('le'),
    object: z.literal('ledger_entry'),
    type: z.enum(['credit', 'usage', 'adjustment']),
    amount: decimal.openapi({ description: 'USD added to the balance; negative for usage' }),
    balance_after: decimal,
    request_id: z.string().nullable(),
    requests: z.int().nullable().openapi({
      description: 'Number of requests of a usage entry: 1, or more if their records are no longer kept',
    }),
    reference: z.string().nullable(),
    note: z.string().nullable(),
    created_at: unixSeconds,
  })
  .openapi('LedgerEntry');

/** Converts a ledger entry to the form of the API. */
export function toEntry(entry: LedgerEntry | LedgerLine): z.infer<typeof entrySchema> {
  return {
    id: formatId('le', entry.id),
    object: 'ledger_entry',
    type: entry.type,
    amount: formatUsd(entry.amountPicoUsd),
    balance_after: formatUsd(entry.balanceAfterPicoUsd),
    request_id: entry.requestId,
    requests: entry.requests,
    reference: entry.reference,
    note: entry.note,
    created_at: toUnixSeconds(entry.createdAt.getTime()),
  };
}
