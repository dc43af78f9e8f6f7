import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { type ApiApp, bearerSecurity, jsonAnswer } from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { openedRunSchema } from '#edge/contract/runs.ts';
import { authorOf } from '#edge/http/http.ts';
import { isOperator } from './cluster-access.ts';
import { type RunRoutesParts, visibleRun } from './run-checks.ts';

/** Registers the route that returns a link to a run's web address, for callers who may see the run. */
export function registerRunOpening(app: ApiApp, parts: RunRoutesParts): void {
  const { guards, exposures } = parts;
  const route = createRoute({
    method: 'post',
    path: '/v1/runs/{id}/open',
    security: bearerSecurity,
    middleware: [guards.may('runs.read')],
    request: { params: z.object({ id: idText('run') }) },
    responses: { 200: jsonAnswer(openedRunSchema, 'The link') },
  });
  app.openapi(route, async (context) => {
    const { id } = await visibleRun(context, parts);
    const caller = context.get('caller');
    const opener = {
      author: authorOf(context),
      organizationId: caller.organizationId,
      isOperator: isOperator(caller),
    };
    const opened = await exposures.open(id, opener);
    if (opened === null) {
      throw new AppError('conflict', {
        message:
          'The run has no web address. An APPLIED run has one if its cluster has a public domain and its stack names a port.',
      });
    }
    const { url, expiresAtMs } = opened;
    const expires = expiresAtMs === null ? null : new Date(expiresAtMs).toISOString();
    context.header('cache-control', 'no-store');
    return context.json({ url, expires_at: expires }, 200);
  });
}
