import type { WalletAnswer } from './answers.ts';
import type { Html } from './html.ts';
import { notice } from './ui.ts';
import { RefusedError, type Visit } from './visit.ts';

/**
 * The wallet; null while nobody knows what is held of it, as while Redis is away: pages show the rest then.
 * @param path of `/v1/wallet`, with an organization where it is another one's
 * @throws RefusedError for any other refusal
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
    'The balance is not known just now: it cannot be said what running requests hold of it. Load the page again in a moment.',
  );
