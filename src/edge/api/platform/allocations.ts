import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import type { AllocationChange, NodeRef } from '#core/clusters/clusters.ts';
import { type ApiApp, bearerSecurity, jsonAnswer, jsonRequest, pageQuery, toPage } from '#edge/api/shared/shared.ts';
import { allocationHistorySchema, allocationPageSchema } from '#edge/contract/clusters.ts';
import { idText } from '#edge/contract/fields.ts';
import { authorOf } from '#edge/http/http.ts';
import { operatorOfCluster, visibleCluster } from './cluster-access.ts';
import { toHistoryAnswer } from './cluster-answers.ts';
import { type ClusterNodeRoutesParts, nodeParams, readNodeName, refOf } from './cluster-nodes.ts';
import { amendSchema, voidSchema } from './cluster-schemas.ts';

/** Allocations of the nodes of a cluster, and their corrections. */

const cluster = '/v1/clusters/{id}';
const allocationParams = nodeParams.extend({
  generation: z.coerce
    .number('must be the number of an allocation')
    .int('must be the number of an allocation')
    .min(1, 'must be the number of an allocation')
    .max(1_000_000_000, 'must be the number of an allocation')
    .openapi({ type: 'integer', example: 1, description: 'Number of the allocation of the node, counted from 1' }),
});

export function registerAllocationRoutes(app: ApiApp, parts: ClusterNodeRoutesParts): void {
  registerList(app, parts);
  registerAmendment(app, parts);
  registerVoiding(app, parts);
}

const listQuery = z.strictObject({
  ...pageQuery,
  node: z.string().optional().openapi({ description: 'Only this node, by id or name; also a removed node' }),
});

function registerList(app: ApiApp, { guards, clusters }: ClusterNodeRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: `${cluster}/allocations`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read')],
    request: { params: z.object({ id: idText('cluster') }), query: listQuery },
    responses: { 200: jsonAnswer(allocationPageSchema, 'A page of allocations') },
  });
  app.openapi(route, async (context) => {
    const clusterId = await visibleCluster(context, clusters, context.req.valid('param').id);
    const { node, ...asked } = context.req.valid('query');
    const named = node === undefined ? null : readNodeName(node);
    const { allocations, total } = await clusters.listAllocations({ clusterId, node: named, ...asked });
    return context.json(toPage(allocations.map(toHistoryAnswer), asked, total), 200);
  });
}

const allocation = `${cluster}/nodes/{node}/allocations/{generation}`;

function registerAmendment(app: ApiApp, parts: ClusterNodeRoutesParts): void {
  const { guards, clusters } = parts;
  const route = createRoute({
    method: 'post',
    path: `${allocation}/amend`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read'), operatorOfCluster(clusters), guards.jsonBody],
    request: { params: allocationParams, body: jsonRequest(amendSchema) },
    responses: { 200: jsonAnswer(allocationHistorySchema, 'The allocation with its amendments') },
  });
  app.openapi(route, async (context) => {
    const params = context.req.valid('param');
    const body = context.req.valid('json');
    const to = { allocatedMs: body.allocated_at, releasedMs: body.released_at };
    const ref = await refOf(context, clusters, params);
    const change = { to, generation: params.generation, reason: body.reason, retroactive: body.retroactive };
    return context.json(await amend(parts, ref, { ...change, author: authorOf(context) }), 200);
  });
}

function registerVoiding(app: ApiApp, parts: ClusterNodeRoutesParts): void {
  const { guards, clusters } = parts;
  const route = createRoute({
    method: 'post',
    path: `${allocation}/void`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read'), operatorOfCluster(clusters), guards.jsonBody],
    request: { params: allocationParams, body: jsonRequest(voidSchema) },
    responses: { 200: jsonAnswer(allocationHistorySchema, 'The allocation with its amendments') },
  });
  app.openapi(route, async (context) => {
    const params = context.req.valid('param');
    const ref = await refOf(context, clusters, params);
    const change = { to: null, generation: params.generation, ...context.req.valid('json') };
    return context.json(await amend(parts, ref, { ...change, author: authorOf(context) }), 200);
  });
}

async function amend({ clusters, announceAddresses }: ClusterNodeRoutesParts, ref: NodeRef, change: AllocationChange) {
  const history = await clusters.amendAllocation(ref, change);
  if (history === null) throw new AppError('not_found', { message: 'There is no such allocation.' });
  await announceAddresses();
  return toHistoryAnswer(history);
}
