import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import { decodeDefinition, encodeDefinition } from '#core/catalog/catalog.ts';
import type { DriverType, EngineDriver, EngineSpec, Fence, ObservedReplica } from '#core/fleet/drivers/drivers.ts';
import type { LeaderState } from '#core/fleet/plan/plan.ts';
import type { CoordinationStore, GoodSpec } from '#core/fleet/store/store.ts';

export interface RecallOptions {
  /** Specs of the files, by engine id. */
  readonly specs: ReadonlyMap<string, EngineSpec>;
  readonly drivers: ReadonlyMap<DriverType, EngineDriver>;
  readonly log: Log;
}

/**
 * Recalls the good specs whose definition still has the hash with which it passed its checks. The hash differs if
 * another version of the gateway computes hashes differently, or if a variable in the definition has a new value.
 * @returns specs by engine id, of engines that files have
 */
export function recallGoodSpecs(kept: readonly GoodSpec[], options: RecallOptions): Map<string, EngineSpec> {
  const recalled = kept.flatMap((one) => {
    const file = options.specs.get(one.engineId);
    if (file === undefined) return [];
    const spec = specOf(one, file, options.drivers);
    if (spec !== null) return [[one.engineId, spec] as const];
    options.log.warn(
      { engine: one.engineId },
      'the last version of an engine that passed its checks can no longer be started: Headgate, or a variable in the engine file, has changed since',
    );
    return [];
  });
  return new Map(recalled);
}

function specOf(
  { definition: text, engineId, specHash }: GoodSpec,
  file: EngineSpec,
  drivers: RecallOptions['drivers'],
) {
  const definition = decodeDefinition(text);
  const { type } = file.definition.driver;
  // Another driver could not start the spec beside the file's replicas.
  if (definition === null || definition.id !== engineId || definition.driver.type !== type) return null;
  try {
    const spec = drivers.get(type)?.specOf(definition);
    return spec?.hash === specHash ? spec : null;
  } catch {
    return null;
  }
}

export interface GoodSpecKeeperOptions {
  readonly store: CoordinationStore;
  readonly fence: Fence;
  readonly clock: Clock;
  readonly log: Log;
  /** Good specs of the store when this gateway began to lead. */
  readonly kept: readonly GoodSpec[];
}

/** Writes the good specs that the leader knows to the store. Never fails; only the gateway's shutdown waits for it. */
export interface GoodSpecKeeper {
  /**
   * Starts to write changed specs unless a write is running; failed writes are retried later. Drops specs of engines
   * that no file has and that do not run, once all drivers could be observed.
   */
  keep(state: LeaderState, found: FoundReplicas): void;
  /** Resolves when no write is running. */
  settled(): Promise<void>;
}

export interface FoundReplicas {
  readonly observed: ReadonlyMap<string, ObservedReplica>;
  readonly blind: ReadonlySet<DriverType>;
}

const retryMs = 2000;

export function createGoodSpecKeeper({ store, fence, clock, log, kept }: GoodSpecKeeperOptions): GoodSpecKeeper {
  let known: Map<string, GoodSpec> | null = byEngine(kept);
  /** Specs already found equal to the kept ones, so that most reconciliations encode nothing. */
  const same = new Map<string, EngineSpec>();
  let running: Promise<void> | null = null;
  let retryAtMs = -Infinity;
  let isReported = false;

  async function write(good: readonly EngineSpec[], isDeleted: (engineId: string) => boolean): Promise<void> {
    known ??= byEngine(await store.goodSpecs());
    for (const spec of good) {
      const before = known.get(spec.engineId);
      const wanted = { engineId: spec.engineId, specHash: spec.hash, definition: encodeDefinition(spec.definition) };
      if (before?.specHash !== wanted.specHash || before.definition !== wanted.definition) {
        const revision = await store.keepGoodSpec(fence, { ...wanted, revision: before?.revision ?? 0n });
        if (revision === null)
          throw new Error('this gateway is no longer the leader, or another definition was stored in the meantime');
        known.set(spec.engineId, { ...wanted, revision });
      }
      same.set(spec.engineId, spec);
    }
    for (const one of [...known.values()].filter(({ engineId }) => isDeleted(engineId))) {
      if (!(await store.dropGoodSpec(fence, one)))
        throw new Error('this gateway is no longer the leader, or another definition was stored in the meantime');
      known.delete(one.engineId);
      same.delete(one.engineId);
    }
    isReported = false;
  }

  function failed(error: unknown): void {
    // The result of the write is unknown: the kept specs are read before the next write.
    known = null;
    same.clear();
    retryAtMs = clock.monotonicMs() + retryMs;
    if (!isReported)
      log.warn(
        { err: error },
        'engine versions that passed their checks could not be stored; after a restart, gateways cannot return to these versions if a newer one fails. Retrying',
      );
    isReported = true;
  }

  return {
    keep(state, { observed, blind }) {
      if (running !== null || clock.monotonicMs() < retryAtMs) return;
      const good = state.engines.flatMap(({ id, lastGood }) => {
        return lastGood === null || same.get(id) === lastGood ? [] : [lastGood];
      });
      const there = new Set([...state.engines.map(({ id }) => id), ...engineIdsOf(observed)]);
      const isDeleted = (engineId: string): boolean => blind.size === 0 && !there.has(engineId);
      const hasDeleted = known === null || [...known.keys()].some(isDeleted);
      if (good.length === 0 && !hasDeleted) return;
      running = write(good, isDeleted)
        .catch(failed)
        .finally(() => (running = null));
    },
    settled: () => running ?? Promise.resolve(),
  };
}

function byEngine(kept: readonly GoodSpec[]): Map<string, GoodSpec> {
  return new Map(kept.map((one) => [one.engineId, one]));
}

function engineIdsOf(observed: ReadonlyMap<string, ObservedReplica>): string[] {
  return [...observed.values()].map(({ replica }) => replica.engineId);
}
