import { count, eq, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db, Transaction } from '#base/database/database.ts';
import { AppError } from '#base/errors.ts';
import { formatId, uuidv7 } from '#base/id.ts';
import type { Audit, AuditView, Author } from '#core/audit/audit.ts';
import type { RateLimitCache } from './limit-cache.ts';
import { noRateLimits, type RateLimit, type RateLimitRef, type RateLimits } from './rate-limit.ts';
import { isOfModel, readRateLimits, toRateLimit } from './rows.ts';
import { projectRateLimits } from './schema.ts';

/**
 * Limits of a project for a model, per minute and per day. Admission enforces them, and reads from the book here which
 * limits apply to a request.
 */
export { type AppliedRateLimit, createRateLimitCache, type RateLimitCache } from './limit-cache.ts';
export { noRateLimits, type RateLimit, type RateLimitRef, type RateLimits } from './rate-limit.ts';

/** The limits of projects. */
export interface ProjectRateLimits {
  readonly cache: RateLimitCache;
  /** Returns a project's limits by model; unlimited models are missing. */
  list(ref: Omit<RateLimitRef, 'model'>): Promise<ReadonlyMap<string, RateLimit>>;
  /**
   * Sets the limits in a patch, and leaves the others unchanged.
   * @returns the resulting limits
   * @throws AppError conflict if the organization has too many
   */
  set(ref: RateLimitRef, patch: RateLimitPatch, author: Author): Promise<RateLimits>;
}

/** Null removes a limit; absent and undefined leave it unchanged. */
export type RateLimitPatch = { readonly [Field in keyof RateLimits]?: RateLimits[Field] | undefined };

export interface ProjectRateLimitsOptions {
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
  readonly cache: RateLimitCache;
  /** Called after a commit; the change is answered only after the promise resolves. */
  readonly onChanged: () => Promise<void>;
}

/** Maximum models with limits in an organization: every gateway keeps all limits in memory. */
export const rateLimitsMax = 2000;

const auditView = (model: string, limits: RateLimits): AuditView => ({
  model,
  max_requests_per_1_minute: limits.requestsPerMinute,
  max_tokens_per_1_minute: limits.tokensPerMinute,
  max_requests_per_1_day: limits.requestsPerDay,
});

export function createProjectRateLimits(options: ProjectRateLimitsOptions): ProjectRateLimits {
  const { db, clock, audit, cache, onChanged } = options;
  return {
    cache,
    list: (ref) => readRateLimits(db, ref),
    async set(ref, patch, author) {
      const after = await db.orm.transaction(async (tx) => {
        await lock(tx, ref.organizationId);
        const [row] = await tx.select().from(projectRateLimits).where(isOfModel(ref));
        const before = row === undefined ? null : toRateLimit(row);
        const after = patched(before?.limits ?? noRateLimits, patch);
        if (areSame(before?.limits ?? noRateLimits, after)) return after;
        if (before === null) await requireRoom(tx, ref.organizationId);
        await write(tx, { ref, before, after }, new Date(clock.now()));
        await audit.record(tx, {
          organizationId: ref.organizationId,
          author,
          action: 'rate_limit.changed',
          targetType: 'project',
          targetId: formatId('proj', ref.projectId),
          before: auditView(ref.model, before?.limits ?? noRateLimits),
          after: auditView(ref.model, after),
        });
        return after;
      });
      // Also runs for unchanged limits: the caller may repeat a change because its success was unknown.
      await onChanged();
      return after;
    },
  };
}

interface Change {
  readonly ref: RateLimitRef;
  readonly before: RateLimit | null;
  readonly after: RateLimits;
}

async function write(tx: Transaction, { ref, before, after }: Change, now: Date): Promise<void> {
  if (areSame(after, noRateLimits)) await tx.delete(projectRateLimits).where(isOfModel(ref));
  else if (before === null) {
    const values = { id: uuidv7(now.getTime()), ...ref, ...after, createdAt: now, updatedAt: now };
    await tx.insert(projectRateLimits).values(values);
  } else {
    await tx
      .update(projectRateLimits)
      .set({ ...after, updatedAt: now })
      .where(isOfModel(ref));
  }
}

function patched(before: RateLimits, patch: RateLimitPatch): RateLimits {
  const chosen = (field: keyof RateLimits): number | null => {
    const given = patch[field];
    return given === undefined ? before[field] : given;
  };
  return {
    requestsPerMinute: chosen('requestsPerMinute'),
    tokensPerMinute: chosen('tokensPerMinute'),
    requestsPerDay: chosen('requestsPerDay'),
  };
}

const areSame = (one: RateLimits, other: RateLimits): boolean =>
  one.requestsPerMinute === other.requestsPerMinute &&
  one.tokensPerMinute === other.tokensPerMinute &&
  one.requestsPerDay === other.requestsPerDay;

/** Serializes changes of an organization's limits. */
async function lock(tx: Transaction, organizationId: string): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`rate limits ${organizationId}`}, 0))`);
}

/** @throws AppError conflict */
async function requireRoom(tx: Transaction, organizationId: string): Promise<void> {
  const isOwn = eq(projectRateLimits.organizationId, organizationId);
  const [row] = await tx.select({ total: count() }).from(projectRateLimits).where(isOwn);
  if ((row?.total ?? 0) < rateLimitsMax) return;
  const message = `The organization has ${rateLimitsMax} rate limits for models of its projects, the maximum. Remove one first.`;
  throw new AppError('conflict', { message });
}
