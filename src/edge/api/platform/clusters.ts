import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import type { Clusters, ClusterWithNodes } from '#core/clusters/clusters.ts';
import type { Exposures } from '#core/web-addresses/web-addresses.ts';
import type { Runs } from '#core/runs/runs.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  listedOrganizationQuery,
  notFound,
  onceHeaders,
  organizationQuery,
  pageQuery,
  toPage,
} from '#edge/api/shared/shared.ts';
import { clusterPageSchema, clusterSchema } from '#edge/contract/clusters.ts';
import { idText } from '#edge/contract/fields.ts';
import { authorOf, ValidationError } from '#edge/http/http.ts';
import { registerAllocationRoutes } from './allocations.ts';
import { operatorOfCluster, optionalBody, visibleCluster } from './cluster-access.ts';
import { toClusterAnswer, toSummaryAnswer } from './cluster-answers.ts';
import { registerClusterNodeRoutes, toNodeInput } from './cluster-nodes.ts';
import { createClusterSchema, patchClusterSchema, rotateSchema } from './cluster-schemas.ts';

/** Clusters: machines of an organization, on which stacks run and whose hours are metered. */

export interface ClusterRoutesParts {
  readonly guards: Guards;
  readonly clusters: Clusters;
  readonly runs: Pick<Runs, 'cancelOfCluster'>;
  readonly exposures: Exposures;
  readonly announceAddresses: () => Promise<void>;
}

const path = '/v1/clusters';
const idParams = z.object({ id: idText('cluster') });

export function registerClusterRoutes(app: ApiApp, parts: ClusterRoutesParts): void {
  registerList(app, parts);
  registerCreation(app, parts);
  registerReading(app, parts);
  registerChanges(app, parts);
  registerRotation(app, parts);
  registerClusterNodeRoutes(app, parts);
  registerAllocationRoutes(app, parts);
}

function found(cluster: ClusterWithNodes | null): ClusterWithNodes {
  if (cluster === null) throw notFound('cluster');
  return cluster;
}

const listQuery = z.strictObject({
  ...pageQuery,
  ...listedOrganizationQuery,
  status: z
    .enum(['active', 'archived', 'all'])
    .default('active')
    .openapi({ description: 'Status of the clusters; `DELETE` archives a cluster' }),
});

function registerList(app: ApiApp, { guards, clusters }: ClusterRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read')],
    request: { query: listQuery },
    responses: { 200: jsonAnswer(clusterPageSchema, 'A page of clusters') },
  });
  app.openapi(route, async (context) => {
    const { organization_id: _, status, ...asked } = context.req.valid('query');
    const organizationId = await guards.organizationOrAll(context);
    const page = await clusters.list({ organizationId, status: status === 'all' ? null : status, ...asked });
    return context.json(toPage(page.clusters.map(toSummaryAnswer), asked, page.total), 200);
  });
}

function registerCreation(app: ApiApp, { guards, clusters, exposures }: ClusterRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path,
    security: bearerSecurity,
    middleware: [guards.may('clusters'), guards.jsonBody, guards.once('cluster', { status: 201 })],
    request: { query: z.strictObject(organizationQuery), headers: onceHeaders, body: jsonRequest(createClusterSchema) },
    responses: { 201: jsonAnswer(clusterSchema, 'The cluster, with the public key for its nodes') },
  });
  app.openapi(route, async (context) => {
    const body = context.req.valid('json');
    const { organization_id: named } = body;
    const input = {
      organizationId: await guards.organizationOf(context, named === undefined ? named : formatId('org', named)),
      name: body.name,
      publicDomain: apartFromGateway(body.public_domain, exposures),
      access: body.access,
      labels: body.labels,
      nodes: body.nodes.map(toNodeInput),
      privateKey: body.access_identity?.private_key ?? null,
    };
    const cluster = await clusters.create(input, authorOf(context));
    context.header('location', `${path}/${formatId('cluster', cluster.id)}`);
    return context.json(toClusterAnswer(cluster), 201);
  });
}

function registerReading(app: ApiApp, { guards, clusters }: ClusterRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read')],
    request: { params: idParams },
    responses: { 200: jsonAnswer(clusterSchema, 'The cluster') },
  });
  app.openapi(route, async (context) => {
    const id = await visibleCluster(context, clusters, context.req.valid('param').id);
    return context.json(toClusterAnswer(found(await clusters.find(id))), 200);
  });
}

/**
 * Rejects a domain that shares a site with the gateway: pages below one domain can set cookies for each other's hosts,
 * so applications need a domain of their own.
 * @throws ValidationError for a domain that shares a site with the gateway's own host
 */
function apartFromGateway<T extends string | null | undefined>(
  domain: T,
  { isOwnSite }: Pick<Exposures, 'isOwnSite'>,
): T {
  if (typeof domain !== 'string' || !isOwnSite(domain)) return domain;
  const message = 'must not share a domain with the gateway (HEADGATE_OWN_HOSTS)';
  throw new ValidationError([{ field: 'public_domain', message }]);
}

function registerChanges(app: ApiApp, parts: ClusterRoutesParts): void {
  const { guards, clusters, runs, exposures, announceAddresses } = parts;
  const mayOperate = operatorOfCluster(clusters);
  const patch = createRoute({
    method: 'patch',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read'), mayOperate, guards.jsonBody],
    request: { params: idParams, body: jsonRequest(patchClusterSchema) },
    responses: { 200: jsonAnswer(clusterSchema, 'The cluster') },
  });
  app.openapi(patch, async (context) => {
    const { name, public_domain: domain, access, labels, organization_id: organizationId } = context.req.valid('json');
    const publicDomain = apartFromGateway(domain, exposures);
    const id = await visibleCluster(context, clusters, context.req.valid('param').id);
    const changes = { name, publicDomain, access, labels, organizationId };
    const cluster = found(await clusters.patch(id, changes, authorOf(context)));
    await announceAddresses();
    return context.json(toClusterAnswer(cluster), 200);
  });
  const remove = createRoute({
    method: 'delete',
    path: `${path}/{id}`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read'), mayOperate],
    request: { params: idParams },
    responses: { 204: { description: 'The cluster was archived' } },
  });
  app.openapi(remove, async (context) => {
    const id = await visibleCluster(context, clusters, context.req.valid('param').id);
    if (!(await clusters.archive(id, authorOf(context)))) throw notFound('cluster');
    await runs.cancelOfCluster(id, authorOf(context));
    await announceAddresses();
    return context.body(null, 204);
  });
}

function registerRotation(app: ApiApp, { guards, clusters }: ClusterRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path: `${path}/{id}/access-identity/rotate`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read'), operatorOfCluster(clusters), optionalBody(guards.jsonBody)],
    request: { params: idParams, body: { ...jsonRequest(rotateSchema), required: false } },
    responses: { 200: jsonAnswer(clusterSchema, 'The cluster, with the new public key') },
  });
  app.openapi(route, async (context) => {
    const id = await visibleCluster(context, clusters, context.req.valid('param').id);
    const { private_key: privateKey = null } = context.req.valid('json');
    return context.json(
      toClusterAnswer(found(await clusters.rotateAccessIdentity(id, privateKey, authorOf(context)))),
      200,
    );
  });
}
