import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { LedgerLine } from '#core/metering/metering.ts';
import type { LedgerEntry } from '#core/wallet/wallet.ts';
import { toUnixSeconds } from '#edge/api/shared/shared.ts';
import type { LedgerEntryAnswer } from '#edge/contract/wallet.ts';

/** Converts a ledger entry to the form of the API. */
export function toEntry(entry: LedgerEntry | LedgerLine): LedgerEntryAnswer {
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
