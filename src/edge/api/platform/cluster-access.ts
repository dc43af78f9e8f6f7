import type { MiddlewareHandler } from 'hono';
import { AppError, needsPlatformAdmin } from '#base/errors.ts';
import { parseId } from '#base/id.ts';
import type { Clusters } from '#core/clusters/clusters.ts';
import { notFound } from '#edge/api/shared/shared.ts';
import type { Caller, HttpContext, HttpEnv } from '#edge/http/http.ts';

/** Access to clusters: members see the clusters of their organization, operators see and change all. */

/** True for a management key of a platform administrator, who may also give one to a provisioner. */
export function isOperator({ platformRole, scope }: Caller): boolean {
  return platformRole === 'admin' && scope === 'management';
}

const operatorsOnly = (): AppError => new AppError('insufficient_scope', { message: needsPlatformAdmin });

/**
 * Returns the UUID of a cluster in a path, if the caller may see the cluster.
 * @throws AppError not_found both for a hidden cluster and for a cluster that does not exist
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
 * Creates the middleware of routes that change a cluster, which runs before the body is read. A caller who sees the
 * cluster but is not an operator gets 403, any other caller 404.
 */
export function operatorOfCluster(clusters: Clusters): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    await visibleCluster(context, clusters, context.req.param('id') ?? '');
    if (!isOperator(context.get('caller'))) throw operatorsOnly();
    await next();
  };
}

/** Returns middleware that reads the body if there is one. A request without a body counts as an empty body. */
export function optionalBody(jsonBody: MiddlewareHandler<HttpEnv>): MiddlewareHandler<HttpEnv> {
  return async (context, next) => {
    const { 'content-length': length, 'transfer-encoding': encoding } = context.env.incoming.headers;
    const isAbsent = encoding === undefined && (length === undefined || length === '0');
    if (!isAbsent) return jsonBody(context, next);
    const { method, url } = context.req;
    const headers = new Headers(context.req.raw.headers);
    // Validators would otherwise parse the missing body as JSON.
    headers.delete('content-type');
    context.req.raw = new Request(url, { method, headers });
    await next();
  };
}
