import type { MiddlewareHandler } from 'hono';
import { AppError, needsPlatformAdmin } from '#base/errors.ts';
import { parseId } from '#base/id.ts';
import type { Clusters } from '#core/clusters/clusters.ts';
import type { Caller, HttpContext, HttpEnv } from '#edge/http/http.ts';
import { notFound } from './schemas.ts';

/** Who sees and who changes clusters: members see those of their organization, operators everything. */

/** A platform admin with a management key, or whom he gave one: a provisioner. */
export function isOperator({ platformRole, scope }: Caller): boolean {
  return platformRole === 'admin' && scope === 'management';
}

const operatorsOnly = (): AppError => new AppError('insufficient_scope', { message: needsPlatformAdmin });

/**
 * The UUID of a cluster in a path that the caller may see.
 * @throws AppError not_found for one that he may not see as for one that is not there
 */
export async function visibleCluster(context: HttpContext, clusters: Clusters, text: string): Promise<string> {
  const caller = context.get('caller');
  const id = parseId('cluster', text);
  const owner = id === null ? null : await clusters.organizationOf(id);
  if (id === null || owner === null) throw notFound('cluster');
  if (!isOperator(caller) && owner !== caller.organizationId) throw notFound('cluster');
  return id;
}

/**
 * Stands before routes that change a cluster, and before their bodies: who sees it and is no operator gets 403, who does
 * not see it 404.
 */
export function operatorOfCluster(clusters: Clusters): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    await visibleCluster(context, clusters, context.req.param('id') ?? '');
    if (!isOperator(context.get('caller'))) throw operatorsOnly();
    await next();
  };
}

/** Reads a body where there is one: a request without any is one with nothing in it. */
export function optionalBody(jsonBody: MiddlewareHandler<HttpEnv>): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    const { 'content-length': length, 'transfer-encoding': encoding } = context.env.incoming.headers;
    const isAbsent = encoding === undefined && (length === undefined || length === '0');
    if (!isAbsent) return jsonBody(context, next);
    const { method, url } = context.req;
    // Validators parse what says that it is JSON.
    context.req.raw = new Request(url, { method });
    await next();
  };
}
