import type { Transaction } from '#base/db.ts';
import type { Author } from '#core/audit/audit.ts';
import type { Booking, BookingResult } from './credit.ts';

/** An organization that is being opened. */
export interface WalletOpening {
  readonly organization: { readonly id: string };
  /** Of the installation. */
  readonly isFirst: boolean;
  readonly author: Author;
}

interface OpenedWallet {
  open(tx: Transaction, organizationId: string): Promise<void>;
  creditIn(tx: Transaction, booking: Booking): Promise<BookingResult>;
}

/** The ledger's own name for the credit of the first start: it cannot be booked twice. */
const firstCreditReference = 'bootstrap';

/**
 * Joins the opening of organizations, in their transaction: each gets a wallet, and the first one credit, so that the
 * first request can be paid.
 */
export function createWalletOpening(
  wallet: OpenedWallet,
  firstCreditPicoUsd: bigint,
): (tx: Transaction, opening: WalletOpening) => Promise<void> {
  return async (tx, { organization, isFirst, author }) => {
    await wallet.open(tx, organization.id);
    if (!isFirst || firstCreditPicoUsd === 0n) return;
    const booked = await wallet.creditIn(tx, {
      organizationId: organization.id,
      amountPicoUsd: firstCreditPicoUsd,
      reference: firstCreditReference,
      note: 'Credit of the first start',
      author,
    });
    if (booked.kind !== 'created') throw new Error(`the first credit was not booked: ${booked.kind}`);
  };
}
