import type { Clock } from '#base/clock.ts';
import type { Log } from '#base/log.ts';
import type { EngineDriver } from './driver.ts';
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

interface LoopState {
  started: boolean;
  ended: boolean;
  /** Asked for while a look was under way. */
  again: boolean;
  running: Promise<void> | null;
  timer: NodeJS.Timeout | null;
  onSettled: () => void;
}

/** The longest time between two looks, whatever was or was not reported. */
const reconcileEveryMs = 1000;

export function createReconciler({ clock, log }: { readonly clock: Clock; readonly log: Log }): Reconciler {
  const engines = new Map<string, Engine>();
  const loop: LoopState = {
    started: false,
    ended: false,
    again: false,
    running: null,
    timer: null,
    onSettled: () => undefined,
  };

  async function lookUntilQuiet(): Promise<void> {
    do {
      loop.again = false;
      await look(engines, log);
    } while (loop.again && !loop.ended);
  }

  function wake(): void {
    if (!loop.started || loop.ended) return;
    if (loop.running !== null) {
      loop.again = true;
      return;
    }
    if (loop.timer !== null) clearTimeout(loop.timer);
    loop.timer = null;
    loop.running = lookUntilQuiet().finally(() => {
      loop.running = null;
      if (isSettled(engines)) loop.onSettled();
      // Asked for after the last look had ended.
      if (loop.again) wake();
      else schedule();
    });
  }

  function schedule(): void {
    if (loop.ended) return;
    const dueInMs = Math.min(...[...engines.values()].map((engine) => engine.dueAtMs())) - clock.monotonicMs();
    loop.timer = setTimeout(wake, Math.max(1, Math.min(dueInMs, reconcileEveryMs)));
  }

  async function close(): Promise<void> {
    if (loop.started && !isSettled(engines)) {
      const settled = new Promise<void>((resolve) => {
        loop.onSettled = resolve;
      });
      wake();
      await settled;
    }
    loop.ended = true;
    if (loop.timer !== null) clearTimeout(loop.timer);
    await loop.running;
  }

  return {
    engines,
    wake,
    async start() {
      loop.started = true;
      wake();
      await loop.running;
    },
    close,
  };
}

async function look(engines: ReadonlyMap<string, Engine>, log: Log): Promise<void> {
  const byDriver = Map.groupBy(engines.values(), (engine) => engine.driver);
  await Promise.all([...byDriver].map(([driver, own]) => lookAt(driver, own, log)));
}

async function lookAt(driver: EngineDriver, engines: readonly Engine[], log: Log): Promise<void> {
  try {
    const byEngine = Map.groupBy(await driver.observe(), ({ replica }) => replica.engineId);
    await Promise.all(engines.map((engine) => engine.reconcile(byEngine.get(engine.spec.engineId) ?? [])));
  } catch (error) {
    // A driver that cannot be asked changes nothing: what was known stays, and it is asked again.
    log.error({ err: error }, 'running engines could not be observed');
  }
}

function isSettled(engines: ReadonlyMap<string, Engine>): boolean {
  return [...engines.values()].every((engine) => engine.phase() === 'stopped' || engine.phase() === 'failed');
}
