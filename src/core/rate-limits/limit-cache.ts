import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { RateLimits } from './rate-limit.ts';
import { readAllRateLimits, readFingerprint } from './rows.ts';

/** The caller that spends; see admission's contract. */
export interface LimitedSpender {
  readonly organizationId: string;
  readonly projectId: string;
}

/** The limits of a project for a model, as admission uses them. */
export interface AppliedRateLimit {
  readonly slot: string;
  readonly projectId: string;
  readonly model: string;
  readonly limits: RateLimits;
}

/** The limits of all projects in this gateway's memory, so that requests wait for no database query. */
export interface RateLimitCache {
  /** Returns null if there are none; one map lookup for an organization without limits. */
  of(spender: LimitedSpender, model: string): AppliedRateLimit | null;
  /** Reads all limits. @throws errors of the database; the limits in memory stay in use */
  load(): Promise<void>;
  /** Reads all limits if they have changed. Finds changes by other gateways that sent no notification. */
  refreshIfChanged(): Promise<void>;
}

export interface RateLimitCacheOptions {
  readonly db: Db;
  readonly log: Log;
}

/** Limits by organization, project and model. */
type Known = ReadonlyMap<string, ReadonlyMap<string, ReadonlyMap<string, AppliedRateLimit>>>;

export function createRateLimitCache({ db, log }: RateLimitCacheOptions): RateLimitCache {
  let known: Known = new Map();
  let fingerprint: string | null = null;
  let isFailing = false;
  let loading = Promise.resolve();
  const read = async (): Promise<void> => {
    // Read before the rows, so that changes in between are read again.
    const seen = await readFingerprint(db);
    known = await readKnown(db);
    fingerprint = seen;
  };
  /** Runs reads one after another, so that an older read never finishes last. */
  const load = (): Promise<void> => {
    loading = loading.catch(() => undefined).then(read);
    return loading;
  };
  return {
    of: ({ organizationId, projectId }, model) => known.get(organizationId)?.get(projectId)?.get(model) ?? null,
    load,
    async refreshIfChanged() {
      try {
        if ((await readFingerprint(db)) !== fingerprint) await load();
        isFailing = false;
      } catch (error) {
        if (!isFailing)
          log.warn(
            { err: error },
            'changes of project limits cannot be read from PostgreSQL; the known limits stay in effect. Retrying every second',
          );
        isFailing = true;
      }
    },
  };
}

async function readKnown(db: Db): Promise<Known> {
  const all = await readAllRateLimits(db);
  const known = new Map<string, Map<string, Map<string, AppliedRateLimit>>>();
  for (const { id, organizationId, projectId, model, limits } of all) {
    const projects = known.get(organizationId) ?? new Map<string, Map<string, AppliedRateLimit>>();
    const models = projects.get(projectId) ?? new Map<string, AppliedRateLimit>();
    known.set(organizationId, projects.set(projectId, models.set(model, { slot: id, projectId, model, limits })));
  }
  return known;
}
