import { setTimeout as pause } from 'node:timers/promises';
import type { CoordinationStore, Published } from './coordination-store.ts';

export interface CarriedOutOptions {
  readonly store: Pick<CoordinationStore, 'demands'>;
  /** Published state that this gateway routes by. */
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
 * Waits until a command is in effect: the leader has carried it out, and every gateway routes by the result. Returns
 * anyway after 5 seconds, for example while no gateway leads; the command stays recorded. Never rejects.
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

/** Returns the published version if it includes the command or a later one; else null. */
function versionWith(published: Published | null, { engineId, commandId }: AwaitedCommand): bigint | null {
  const engine = published?.engines.find((one) => one.engineId === engineId);
  const last = engine?.lastCommand ?? null;
  return published === null || last === null || BigInt(last) < BigInt(commandId) ? null : published.version;
}

async function isSeen(store: CarriedOutOptions['store'], version: bigint): Promise<boolean> {
  const demands = await store.demands().catch(() => []);
  return demands.length > 0 && demands.every(({ seenVersion }) => seenVersion >= version);
}
