import { createRoute, z } from '@hono/zod-openapi';
import { parseId } from '#base/id.ts';
import { type Run, runStatuses } from '#core/runs/runs.ts';
import {
  type ApiApp,
  bearerSecurity,
  jsonAnswer,
  listedOrganizationQuery,
  pageQuery,
  timeBound,
  toPage,
} from '#edge/api/shared/shared.ts';
import { nameText } from '#edge/contract/fields.ts';
import { runPageSchema } from '#edge/contract/runs.ts';
import { answersOf, type RunRoutesParts } from './run-checks.ts';

/** The list of runs, with its filters. */

const statusQuery = z
  .string()
  .transform((text, context): Run['status'][] => {
    const names = text.split(',').map((name) => name.trim());
    const known = names.flatMap((name) => runStatuses.find((status) => status === name) ?? []);
    if (known.length === names.length) return known;
    const message = `must be one or more of ${runStatuses.join(', ')}, separated by commas`;
    context.addIssue({ code: 'custom', message });
    return z.NEVER;
  })
  .optional()
  .openapi({
    type: 'string',
    description: 'Only runs with one of these statuses, separated by commas',
    example: 'PENDING,PLANNING',
  });

const listQuery = z.strictObject({
  ...pageQuery,
  ...listedOrganizationQuery,
  cluster_id: z
    .string()
    .refine((text) => parseId('cluster', text) !== null, 'must be the id of a cluster: cluster_…')
    .optional()
    .openapi({ description: 'Only runs on this cluster' }),
  stack: nameText(100).optional().openapi({ description: 'Only runs of the stack with this name' }),
  status: statusQuery,
  created_by: z
    .string()
    .refine((text) => parseId('user', text) !== null || parseId('key', text) !== null, 'must be user_… or key_…')
    .optional()
    .openapi({
      description: 'Only runs that this user or API key requested; those of a user include those of the keys',
    }),
  drift_checks: z.enum(['true', 'false']).optional().openapi({
    description: 'true: only drift checks. Default: only other runs',
  }),
  from: timeBound('Only runs requested at or after this date (midnight UTC) or RFC 3339 time'),
  to: timeBound('Only runs requested before this date or time'),
});

export function registerRunList(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, runs, clusters } = parts;
  const route = createRoute({
    method: 'get',
    path: '/v1/runs',
    security: bearerSecurity,
    middleware: [guards.may('runs.read')],
    request: { query: listQuery },
    responses: { 200: jsonAnswer(runPageSchema, 'A page of runs') },
  });
  app.openapi(route, async (context) => {
    const {
      cluster_id: cluster = '',
      stack,
      status,
      created_by: author = '',
      drift_checks: driftChecks,
      from,
      to,
      ...asked
    } = context.req.valid('query');
    const { page, limit } = asked;
    const organizationId = await guards.organizationOrAll(context);
    const found = await runs.list({
      // Runs belong to the organization that has their cluster now.
      clusterIds: organizationId === null ? null : await clusters.idsOf(organizationId),
      clusterId: parseId('cluster', cluster),
      stackName: stack ?? null,
      statuses: status ?? null,
      userId: parseId('user', author),
      keyId: parseId('key', author),
      fromMs: from ?? null,
      toMs: to ?? null,
      isDriftCheck: driftChecks === 'true',
      page,
      limit,
    });
    return context.json(toPage(await answersOf(parts, found.runs), asked, found.total), 200);
  });
}
