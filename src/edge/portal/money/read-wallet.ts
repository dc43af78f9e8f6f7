import type { WalletAnswer } from '#edge/contract/wallet.ts';
import { type Html, notice, RefusedError, type Visit } from '#edge/portal/ui/ui.ts';

/**
 * Reads the wallet. Returns null while its holds are unknown, such as without Redis, so that pages show the rest.
 * @param path `/v1/wallet`, with the organization if it is not the visitor's
 * @throws RefusedError for any other rejection
 */
export async function readWallet({ send }: Pick<Visit, 'send'>, path = '/v1/wallet'): Promise<WalletAnswer | null> {
  const outcome = await send<WalletAnswer>('GET', path);
  if (outcome.ok) return outcome.body;
  if (outcome.refusal.status === 503) return null;
  throw new RefusedError(outcome.refusal);
}

export const unknownBalance = (): Html =>
  notice(
    'plain',
    'The balance is unavailable, because the holds of running requests cannot be read. Reload the page in a moment.',
  );
