import type { MiddlewareHandler } from 'hono';
import { matchedRoutes } from 'hono/route';
import type { Log } from '#base/log.ts';
import { keyIdOf } from '#core/audit/audit.ts';
import type { HttpEnv } from '#edge/http/http.ts';
import { shortenForLog } from './shorten-for-log.ts';
import { idOf } from './request-log.ts';
import type { RequestMetrics } from './request-metrics.ts';

/** Label of unknown paths. A client's own text must not become a label. */
const noRoute = 'other';

/** Assets of the portal's pages. Their requests do not show who did what. */
const assetRoute = '/portal/assets/:hash/:name';

/**
 * Creates middleware for all routes except inference: it counts and logs their requests. The label is the pattern that
 * a request matched, never its path.
 */
export function createOtherRequests(metrics: RequestMetrics, log: Log): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    const sinceMs = performance.now();
    await next();
    const { status } = context.res;
    const known: Partial<HttpEnv['Variables']> = context.var;
    const code = known.failureCode ?? null;
    // Handlers for all methods are middleware, not routes.
    const matched = matchedRoutes(context).findLast(({ method }) => method !== 'ALL');
    const route = matched === undefined || matched.path.endsWith('*') ? noRoute : matched.path;
    metrics.otherEnded(route, status, code);
    const totalMs = Math.round((performance.now() - sinceMs) * 10) / 10;
    const fields = {
      requestId: known.requestId,
      route,
      // Operators look for the unknown path. The query is left out, because it may contain secrets.
      ...(route === noRoute && { path: shortenForLog(context.req.path) }),
      method: context.req.method,
      status,
      code,
      param: shortenForLog(known.failureParam ?? null),
      reason: known.failureReason ?? null,
      keyId: idOf('key', known.caller === undefined ? null : keyIdOf(known.caller.actor)),
      organizationId: idOf('org', known.caller?.organizationId ?? null),
      totalMs,
    };
    // A page loads five assets. Logged at info, they would scroll the output of the first start out of its terminal.
    log[route === assetRoute && status === 200 ? 'debug' : 'info'](fields, 'api request');
  };
}
