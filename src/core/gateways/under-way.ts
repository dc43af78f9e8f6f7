import type { Db } from '#base/db.ts';
import type { Log } from '#base/log.ts';

/** Tokens that an engine may count of requests. */
export interface CountedMost {
  readonly promptTokens: number;
  readonly completionTokens: number;
}

/**
 * How much the requests may come to that this gateway has at each engine, known to the database before they are sent:
 * when it is killed, no book has more of theirs than that. A mark that is reached is raised to the double, so that few
 * requests wait for it, none longer than `waitMs`, and none where the last one waited in vain; one that has become far
 * too high is lowered.
 */
export interface UnderWay {
  /** @param engineId the engine's, also for adapters @returns void where the database knows already */
  enter(engineId: string, most: CountedMost): Promise<void> | void;
  leave(engineId: string, most: CountedMost): void;
  /** Lowers marks that a while has not come near; to be called now and then. */
  lower(): Promise<void>;
}

/** A first mark, and what marks are not lowered below. */
const least: CountedMost = { promptTokens: 16_384, completionTokens: 16_384 };
/** The requests go on without it where PostgreSQL does not answer: their records go to the spool as well. */
const waitMs = 250;

interface Engine {
  now: CountedMost;
  peak: CountedMost;
  mark: CountedMost;
  /** The mark that the database has. */
  known: CountedMost;
}

export interface UnderWayOptions {
  readonly db: Db;
  readonly log: Log;
  /** The run of this gateway. */
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

export function createUnderWay({ db, log, id }: UnderWayOptions): UnderWay {
  const engines = new Map<string, Engine>();
  let writing: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  /** The last one that was waited for failed, or was late: nobody waits until one is written again. */
  let isAway = false;

  /** Said once. */
  function away(error: unknown): void {
    if (!isAway) log.warn({ err: error }, 'what this gateway has under way could not be noted in PostgreSQL');
    isAway = true;
  }

  async function write(): Promise<void> {
    const marks = [...engines].map(([engineId, { mark }]) => [engineId, mark] as const);
    try {
      await db.sql`update gateway_runs set under_way = ${JSON.stringify(Object.fromEntries(marks))}::text::jsonb
        where id = ${id}`;
      for (const [engineId, mark] of marks) Object.assign(engines.get(engineId) ?? {}, { known: mark });
      isAway = false;
    } catch (error) {
      away(error);
    }
  }

  /** One at a time: whoever comes meanwhile shares the next. */
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
    return isAway ? undefined : inTime(noted, () => away(new Error(`no answer within ${waitMs} ms`)));
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

function inTime(noted: Promise<void>, onLate: () => void): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => (timer = setTimeout(resolve, waitMs))).then(onLate);
  return Promise.race([noted, late]).finally(() => clearTimeout(timer));
}
