import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import { within } from '#base/within.ts';

/** Maximum tokens that an engine may count for requests. */
export interface CountedMost {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/**
 * Maximum tokens of this gateway's requests at each engine, stored in the database before the requests are sent: if the
 * gateway is killed, at most this many tokens are missing from the records. When a mark is exceeded, it is raised to
 * twice the need, so that few requests wait for the write. None waits longer than `waitMs`, and none after a failed
 * wait. A mark that has become far too high is lowered.
 */
export interface TokenWatermarks {
  /**
   * Adds a request. @param engineId the engine's id, also for adapters @returns void if the database's mark suffices
   */
  enter(engineId: string, most: CountedMost): Promise<void> | void;
  leave(engineId: string, most: CountedMost): void;
  /** Lowers marks that are much higher than the recent peak; must be called now and then. */
  lower(): Promise<void>;
}

/** The first mark, and the minimum of all marks. */
const least: CountedMost = { promptTokens: 16_384, completionTokens: 16_384 };
/** Requests continue without a stored mark if PostgreSQL does not answer: their records go to the spool as well. */
const waitMs = 250;
const notStored =
  'running requests could not be noted in PostgreSQL; if this gateway is killed now, reconciliation may show unexplained tokens';

interface Engine {
  now: CountedMost;
  peak: CountedMost;
  mark: CountedMost;
  /** The mark stored in the database. */
  known: CountedMost;
}

export interface TokenWatermarksOptions {
  readonly db: Db;
  readonly log: Log;
  /** Id of this gateway's run. */
  readonly id: string;
}

const each = (a: CountedMost, b: CountedMost, join: (a: number, b: number) => number): CountedMost => ({
  promptTokens: join(a.promptTokens, b.promptTokens),
  completionTokens: join(a.completionTokens, b.completionTokens),
});
const larger = (a: CountedMost, b: CountedMost): CountedMost => each(a, b, Math.max);
const twice = (most: CountedMost): CountedMost =>
  larger(
    each(most, most, (a, b) => a + b),
    least,
  );
const isWithin = (a: CountedMost, b: CountedMost): boolean =>
  a.promptTokens <= b.promptTokens && a.completionTokens <= b.completionTokens;
const nothing: CountedMost = { promptTokens: 0, completionTokens: 0 };

export function createTokenWatermarks({ db, log, id }: TokenWatermarksOptions): TokenWatermarks {
  const engines = new Map<string, Engine>();
  let writing: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  /** True after a failed or late write: no request waits until a write succeeds again. */
  let isFailing = false;

  /** Logs a failed write, once until a write succeeds. */
  function noteFailure(error: unknown): void {
    if (!isFailing) log.warn({ err: error }, notStored);
    isFailing = true;
  }

  async function write(): Promise<void> {
    const marks = [...engines].map(([engineId, { mark }]) => [engineId, mark] as const);
    try {
      await db.sql`update gateway_runs set under_way = ${JSON.stringify(Object.fromEntries(marks))}::text::jsonb
        where id = ${id}`;
      for (const [engineId, mark] of marks) Object.assign(engines.get(engineId) ?? {}, { known: mark });
      isFailing = false;
    } catch (error) {
      noteFailure(error);
    }
  }

  /** Writes one at a time: callers during a write share the next one. */
  function written(): Promise<void> {
    next ??= (writing ?? Promise.resolve()).then(() => {
      next = null;
      writing = write();
      return writing;
    });
    return next;
  }

  function soon(): Promise<void> | void {
    const noted = written();
    if (isFailing) return undefined;
    return within(noted, waitMs, () => noteFailure(new Error(`no answer within ${waitMs} ms`)));
  }

  return {
    enter(engineId, most) {
      const engine = engines.get(engineId) ?? { now: nothing, peak: nothing, mark: nothing, known: nothing };
      engines.set(engineId, engine);
      engine.now = each(engine.now, most, (a, b) => a + b);
      engine.peak = larger(engine.peak, engine.now);
      if (!isWithin(engine.now, engine.mark)) engine.mark = larger(engine.mark, twice(engine.now));
      else if (isWithin(engine.now, engine.known)) return;
      return soon();
    },
    leave(engineId, most) {
      const engine = engines.get(engineId);
      if (engine !== undefined) engine.now = each(engine.now, most, (a, b) => a - b);
    },
    async lower() {
      let isLower = false;
      for (const engine of engines.values()) {
        const wanted = twice(twice(engine.peak));
        engine.peak = engine.now;
        if (isWithin(engine.mark, wanted)) continue;
        engine.mark = each(engine.mark, wanted, Math.min);
        engine.known = each(engine.known, engine.mark, Math.min);
        isLower = true;
      }
      if (isLower) await written();
    },
  };
}
