import type { MiddlewareHandler } from 'hono';
import { matchedRoutes } from 'hono/route';
import type { Log } from '#base/log.ts';
import { keyIdOf } from '#core/audit/audit.ts';
import type { HttpEnv } from '#edge/http/http.ts';
import { clientsWord } from './clients-word.ts';
import { idOf } from './request-log.ts';
import type { RequestMetrics } from './request-metrics.ts';

/** The label of a path that is none of ours: what a client made up is no label. */
const noRoute = 'other';

/** Files of the pages, which say nothing of who did what. */
const assetRoute = '/portal/assets/:hash/:name';

/**
 * Middleware before all routes but those of inference: counts and logs their requests. The label is the pattern that a
 * request matched, never its path.
 */
export function createOtherRequests(metrics: RequestMetrics, log: Log): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    const sinceMs = performance.now();
    await next();
    const { status } = context.res;
    const known: Partial<HttpEnv['Variables']> = context.var;
    const code = known.failureCode ?? null;
    // What answers to every method is a middleware and no route.
    const matched = matchedRoutes(context).findLast(({ method }) => method !== 'ALL');
    const route = matched === undefined || matched.path.endsWith('*') ? noRoute : matched.path;
    metrics.otherEnded(route, status, code);
    const totalMs = Math.round((performance.now() - sinceMs) * 10) / 10;
    const fields = {
      requestId: known.requestId,
      route,
      // Which address was wrong is what an operator looks for. The query may carry secrets.
      ...(route === noRoute && { path: clientsWord(context.req.path) }),
      method: context.req.method,
      status,
      code,
      param: clientsWord(known.failureParam ?? null),
      reason: known.failureReason ?? null,
      keyId: idOf('key', known.caller === undefined ? null : keyIdOf(known.caller.actor)),
      organizationId: idOf('org', known.caller?.organizationId ?? null),
      totalMs,
    };
    // A page has five of these: they would push what the first start has printed out of its terminal.
    log[route === assetRoute && status === 200 ? 'debug' : 'info'](fields, 'api request');
  };
}
