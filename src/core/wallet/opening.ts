import type { Transaction } from '#base/database/database.ts';
import type { Author } from '#core/audit/audit.ts';
import type { Booking, BookingResult } from './credit.ts';

/** An organization that is being opened. */
export interface WalletOpening {
  readonly organization: { readonly id: string };
  /** True for the first organization of the installation. */
  readonly isFirst: boolean;
  readonly author: Author;
}

interface OpenedWallet {
  open(tx: Transaction, organizationId: string): Promise<void>;
  creditIn(tx: Transaction, booking: Booking): Promise<BookingResult>;
}

/** Ledger reference of the first start's credit; prevents a second credit. */
const firstCreditReference = 'bootstrap';

/**
 * Creates a wallet for each new organization, in the transaction that creates the organization. The first organization
 * also gets credit, to pay for the first requests.
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
      note: 'Initial credit',
      author,
    });
    if (booked.kind !== 'created') throw new Error(`the initial credit was not applied: ${booked.kind}`);
  };
}
