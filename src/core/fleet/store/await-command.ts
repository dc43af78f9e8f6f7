import { setTimeout as pause } from 'node:timers/promises';
import type { CoordinationStore, Published } from './coordination-store.ts';

export interface CarriedOutOptions {
  readonly store: Pick<CoordinationStore, 'demands'>;
  /** As this gateway goes by it. */
  readonly published: () => Published | null;
  readonly isClosing: () => boolean;
}

export interface AwaitedCommand {
  readonly engineId: string;
  readonly commandId: string;
}

const askEveryMs = 50;
const waitMsMax = 5000;

/**
 * Waits until a command holds: whoever leads has carried it out, and every gateway goes by that. Returns all the same
 * when that takes too long, as it does while nobody leads: the command stays noted. Never rejects.
 */
export async function carriedOut(options: CarriedOutOptions, command: AwaitedCommand): Promise<void> {
  const untilMs = performance.now() + waitMsMax;
  let version: bigint | null = null;
  while (performance.now() < untilMs && !options.isClosing()) {
    version ??= versionWith(options.published(), command);
    if (version !== null && (await isSeen(options.store, version))) return;
    await pause(askEveryMs);
  }
}

/** The published version, if that command or a later one is carried out in it; else null. */
function versionWith(published: Published | null, { engineId, commandId }: AwaitedCommand): bigint | null {
  const engine = published?.engines.find((one) => one.engineId === engineId);
  const last = engine?.lastCommand ?? null;
  return published === null || last === null || BigInt(last) < BigInt(commandId) ? null : published.version;
}

async function isSeen(store: CarriedOutOptions['store'], version: bigint): Promise<boolean> {
  const demands = await store.demands().catch(() => []);
  return demands.length > 0 && demands.every(({ seenVersion }) => seenVersion >= version);
}
