import { createRoute, z } from '@hono/zod-openapi';
import { formatId, parseId } from '#base/id.ts';
import type { ClusterNode, Clusters, NodeEventKind, NodeInput, NodeRef } from '#core/clusters/clusters.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
} from '#edge/api/shared/shared.ts';
import { nodeEventResultSchema, nodeSchema } from '#edge/contract/clusters.ts';
import { idText } from '#edge/contract/fields.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';
import { operatorOfCluster, optionalBody, visibleCluster } from './cluster-access.ts';
import { toEventAnswer, toNodeAnswer } from './cluster-answers.ts';
import { newNodeSchema, nodeEventSchema, patchNodeSchema } from './cluster-schemas.ts';

/** Nodes of a cluster, and their events. A node is named by its id or by its name. */

export interface ClusterNodeRoutesParts {
  readonly guards: Guards;
  readonly clusters: Clusters;
  /** Ends open connections to web addresses that led to a node. */
  readonly announceAddresses: () => Promise<void>;
}

const isListed = { instead: 'GET /v1/clusters/{id} lists it.' };
const path = '/v1/clusters/{id}/nodes';
const clusterParams = z.object({ id: idText('cluster') });
export const nodeParams = z.object({
  id: idText('cluster'),
  node: z.string().openapi({ example: 'gpu-1', description: 'Id or name of the node' }),
});

export function registerClusterNodeRoutes(app: ApiApp, parts: ClusterNodeRoutesParts): void {
  registerAddition(app, parts);
  registerChanges(app, parts);
  registerEvent(app, parts, 'allocate');
  registerEvent(app, parts, 'release');
  registerHeartbeat(app, parts);
}

export function toNodeInput(body: z.output<typeof newNodeSchema>): NodeInput {
  return {
    name: body.name,
    address: body.address,
    privateAddress: body.private_address,
    sshPort: body.ssh_port,
    sshUser: body.ssh_user,
    hostKey: body.host_key,
    hardwareProfile: body.hardware_profile,
    gpus: body.gpus,
    labels: body.labels,
  };
}

/** Reads the id or the name of a node. @throws AppError not_found for a text that is neither */
export function readNodeName(text: string): NodeRef['node'] {
  const id = parseId('node', text);
  // Names never contain an underscore. A text that is neither a name nor an id is not looked up.
  if (id !== null) return { id };
  if (!/^[a-z0-9-]{1,63}$/.test(text)) throw notFound('node');
  return { name: text };
}

export async function refOf(
  context: HttpContext,
  clusters: Clusters,
  { id, node }: z.output<typeof nodeParams>,
): Promise<NodeRef> {
  return { clusterId: await visibleCluster(context, clusters, id), node: readNodeName(node) };
}

function found<T extends ClusterNode | object>(value: T | null): T {
  if (value === null) throw notFound('node');
  return value;
}

function registerAddition(app: ApiApp, { guards, clusters }: ClusterNodeRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path,
    security: bearerSecurity,
    middleware: [
      guards.may('clusters.read'),
      operatorOfCluster(clusters),
      guards.jsonBody,
      guards.once('node', isListed),
    ],
    request: { params: clusterParams, headers: onceHeaders, body: jsonRequest(newNodeSchema) },
    responses: { 201: jsonAnswer(nodeSchema, 'The node') },
  });
  app.openapi(route, async (context) => {
    const { id } = context.req.valid('param');
    const clusterId = await visibleCluster(context, clusters, id);
    const added = await clusters.addNode(clusterId, toNodeInput(context.req.valid('json')), authorOf(context));
    if (added === null) throw notFound('cluster');
    context.header('location', `/v1/clusters/${id}/nodes/${formatId('node', added.id)}`);
    return context.json(toNodeAnswer(added), 201);
  });
}

function registerChanges(app: ApiApp, { guards, clusters, announceAddresses }: ClusterNodeRoutesParts): void {
  const mayOperate = operatorOfCluster(clusters);
  const patch = createRoute({
    method: 'patch',
    path: `${path}/{node}`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read'), mayOperate, guards.jsonBody],
    request: { params: nodeParams, body: jsonRequest(patchNodeSchema) },
    responses: { 200: jsonAnswer(nodeSchema, 'The node') },
  });
  app.openapi(patch, async (context) => {
    const ref = await refOf(context, clusters, context.req.valid('param'));
    const body = context.req.valid('json');
    const changes = {
      name: body.name,
      address: body.address,
      privateAddress: body.private_address,
      sshPort: body.ssh_port,
      sshUser: body.ssh_user,
      hostKey: body.host_key,
      hardwareProfile: body.hardware_profile,
      gpus: body.gpus,
      labels: body.labels,
    };
    const node = found(await clusters.patchNode(ref, changes, authorOf(context)));
    await announceAddresses();
    return context.json(toNodeAnswer(node), 200);
  });
  const remove = createRoute({
    method: 'delete',
    path: `${path}/{node}`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read'), mayOperate],
    request: { params: nodeParams },
    responses: { 204: { description: 'The node was removed' } },
  });
  app.openapi(remove, async (context) => {
    const ref = await refOf(context, clusters, context.req.valid('param'));
    if (!(await clusters.removeNode(ref, authorOf(context)))) throw notFound('node');
    await announceAddresses();
    return context.body(null, 204);
  });
}

function registerEvent(
  app: ApiApp,
  { guards, clusters, announceAddresses }: ClusterNodeRoutesParts,
  kind: NodeEventKind,
): void {
  const route = createRoute({
    method: 'post',
    path: `${path}/{node}/${kind}`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read'), operatorOfCluster(clusters), optionalBody(guards.jsonBody)],
    request: { params: nodeParams, body: { ...jsonRequest(nodeEventSchema), required: false } },
    responses: { 200: jsonAnswer(nodeEventResultSchema, 'The recorded allocation and the node') },
  });
  app.openapi(route, async (context) => {
    const ref = await refOf(context, clusters, context.req.valid('param'));
    const { at = null, generation = null } = context.req.valid('json');
    const result = found(await clusters.record(ref, { kind, atMs: at, generation, author: authorOf(context) }));
    // A repetition is announced, too: the gateway of the first request may have stopped before the announcement.
    await announceAddresses();
    return context.json(toEventAnswer(result), 200);
  });
}

function registerHeartbeat(app: ApiApp, { guards, clusters }: ClusterNodeRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path: `${path}/{node}/heartbeat`,
    security: bearerSecurity,
    middleware: [guards.may('clusters.read'), operatorOfCluster(clusters)],
    request: { params: nodeParams },
    responses: { 204: { description: 'The heartbeat was recorded' } },
  });
  app.openapi(route, async (context) => {
    const ref = await refOf(context, clusters, context.req.valid('param'));
    if (!(await clusters.heartbeat(ref, authorOf(context)))) throw notFound('node');
    return context.body(null, 204);
  });
}
