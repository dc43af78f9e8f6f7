import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { EngineDriver, ObservedReplica } from './driver.ts';
import type { Engine } from './engine.ts';

/** Looks at what runs, lets each engine act on it, and comes back when something changes or falls due. */
export interface Reconciler {
  readonly engines: Map<string, Engine>;
  /** The first look; others follow by themselves. */
  start(): Promise<void>;
  /** Asks for a look soon; many asks make one. */
  readonly wake: () => void;
  /** Goes on until every engine is stopped or failed, then ends. */
  close(): Promise<void>;
}

/** The longest time between two looks, whatever was or was not reported. */
const reconcileEveryMs = 1000;

export function createReconciler(options: {
  readonly drivers: readonly EngineDriver[];
  readonly clock: Clock;
  readonly log: Log;
}): Reconciler {
  const { drivers, clock, log } = options;
  const engines = new Map<string, Engine>();
  let started = false;
  let ended = false;
  let running: Promise<void> | null = null;
  let again = false;
  let timer: NodeJS.Timeout | null = null;
  let whenSettled: (() => void) | null = null;

  async function look(): Promise<void> {
    const observed: ObservedReplica[] = [];
    for (const driver of drivers) observed.push(...(await driver.observe()));
    const byEngine = Map.groupBy(observed, ({ replica }) => replica.engineId);
    await Promise.all([...engines].map(([id, engine]) => engine.reconcile(byEngine.get(id) ?? [])));
  }

  async function lookUntilQuiet(): Promise<void> {
    do {
      again = false;
      try {
        await look();
      } catch (error) {
        // A driver that cannot be asked changes nothing: what was known stays, and it is asked again.
        log.error({ err: error }, 'the running engines could not be observed');
      }
    } while (again && !ended);
  }

  function wake(): void {
    if (!started || ended) return;
    if (running !== null) {
      again = true;
      return;
    }
    if (timer !== null) clearTimeout(timer);
    timer = null;
    running = lookUntilQuiet().finally(() => {
      running = null;
      if (isSettled()) whenSettled?.();
      // Asked for after the last look had ended.
      if (again) wake();
      else schedule();
    });
  }

  function schedule(): void {
    if (ended || timer !== null) return;
    const dueInMs = Math.min(...[...engines.values()].map((engine) => engine.dueAtMs())) - clock.monotonicMs();
    timer = setTimeout(wake, Math.max(1, Math.min(dueInMs, reconcileEveryMs)));
  }

  function isSettled(): boolean {
    return [...engines.values()].every((engine) => engine.phase() === 'stopped' || engine.phase() === 'failed');
  }

  return {
    engines,
    wake,
    async start() {
      started = true;
      wake();
      await running;
    },
    async close() {
      if (started && !isSettled()) {
        const settled = new Promise<void>((resolve) => {
          whenSettled = resolve;
        });
        wake();
        await settled;
      }
      ended = true;
      if (timer !== null) clearTimeout(timer);
      await running;
    },
  };
}
