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
    type: z
      .enum(['credit', 'usage', 'adjustment'])
      .openapi({ description: '`usage`: charge for a request. `adjustment`: correction by a platform administrator' }),
    amount: decimal.openapi({ description: 'USD added to the balance, exact decimal; negative for usage' }),
    balance_after: decimal.openapi({ description: 'Balance after this entry in USD, exact decimal' }),
    request_id: z.string().nullable().openapi({ description: 'Id of the charged request; null for other entries' }),
    requests: z.int().nullable().openapi({
      description: 'Number of charged requests: 1, or more if their records are no longer kept; null for other entries',
    }),
    reference: z.string().nullable().openapi({ description: 'Your reference, unique in the wallet; null for usage' }),
    note: z.string().nullable().openapi({ description: 'Note of a credit, or reason of an adjustment' }),
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
