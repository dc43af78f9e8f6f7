import { and, eq, type SQL } from 'drizzle-orm';
import type { Db } from '#base/database/database.ts';
import type { RateLimit, RateLimitRef } from './rate-limit.ts';
import { projectRateLimits } from './schema.ts';

export function toRateLimit({
  id,
  organizationId,
  projectId,
  model,
  requestsPerMinute,
  tokensPerMinute,
  requestsPerDay,
}: typeof projectRateLimits.$inferSelect): RateLimit {
  return { id, organizationId, projectId, model, limits: { requestsPerMinute, tokensPerMinute, requestsPerDay } };
}

export const isOfModel = ({ organizationId, projectId, model }: RateLimitRef): SQL | undefined =>
  and(
    eq(projectRateLimits.organizationId, organizationId),
    eq(projectRateLimits.projectId, projectId),
    eq(projectRateLimits.model, model),
  );

export async function readAllRateLimits({ orm }: Db): Promise<readonly RateLimit[]> {
  return (await orm.select().from(projectRateLimits)).map(toRateLimit);
}

/** Returns a project's limits by model; unlimited models are missing. */
export async function readRateLimits(
  { orm }: Db,
  { organizationId, projectId }: Omit<RateLimitRef, 'model'>,
): Promise<ReadonlyMap<string, RateLimit>> {
  const { organizationId: organization, projectId: project } = projectRateLimits;
  const isOfProject = and(eq(organization, organizationId), eq(project, projectId));
  const rows = await orm.select().from(projectRateLimits).where(isOfProject);
  return new Map(rows.map((row) => [row.model, toRateLimit(row)]));
}

/** Returns a text that differs after every created, changed or deleted limit; committed changes change a row's xmin. */
export async function readFingerprint({ sql }: Db): Promise<string> {
  const [row] = await sql<{ seen: string }[]>`
    select coalesce(md5(string_agg(id::text || xmin::text, ',' order by id)), '') as seen from project_rate_limits`;
  return row?.seen ?? '';
}
