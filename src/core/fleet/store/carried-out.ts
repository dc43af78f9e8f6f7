import { setTimeout as pause } from 'node:timers/promises';
import type { FleetBoard, Published } from './coordination-store.ts';

export interface CarriedOutOptions {
  readonly board: Pick<FleetBoard, 'demands'>;
  /** As this gateway goes by it. */
  readonly published: () => Published | null;
  readonly isClosing: () => boolean;
}

export interface WaitedOrder {
  readonly engineId: string;
  readonly orderId: string;
}

const askEveryMs = 50;
const waitMsMax = 5000;

/**
 * Waits until an order holds: whoever leads has carried it out, and every gateway goes by that. Returns all the same
 * when that takes too long, as it does while nobody leads: the order stays noted. Never rejects.
 */
export async function carriedOut(options: CarriedOutOptions, order: WaitedOrder): Promise<void> {
  const untilMs = performance.now() + waitMsMax;
  let version: bigint | null = null;
  while (performance.now() < untilMs && !options.isClosing()) {
    version ??= versionWith(options.published(), order);
    if (version !== null && (await isSeen(options.board, version))) return;
    await pause(askEveryMs);
  }
}

/** The published version, if it tells of that order or of one that came later; else null. */
function versionWith(published: Published | null, { engineId, orderId }: WaitedOrder): bigint | null {
  const engine = published?.engines.find((one) => one.engineId === engineId);
  const last = engine?.lastOrder ?? null;
  return published === null || last === null || BigInt(last) < BigInt(orderId) ? null : published.version;
}

async function isSeen(board: CarriedOutOptions['board'], version: bigint): Promise<boolean> {
  const demands = await board.demands().catch(() => []);
  return demands.length > 0 && demands.every(({ seenVersion }) => seenVersion >= version);
}
