import { createRoute, z } from '@hono/zod-openapi';
import { formatId, isUuid } from '#base/id.ts';
import type { Alerts, Endpoint, EndpointWithSecret } from '#core/alerts/alerts.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  listQuery,
  notFound,
  onceHeaders,
  organizationQuery,
  readCursor,
  requireId,
  toListPage,
} from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import {
  createdWebhookSchema,
  deletedWebhookSchema,
  webhookListSchema,
  webhookSchema,
} from '#edge/contract/webhooks.ts';
import { authorOf } from '#edge/http/http.ts';
import { createSchema, patchSchema, rotateSchema, toWebhook } from './webhook-schemas.ts';

export { registerWebhookDeliveryRoutes } from './webhook-deliveries.ts';

/** Webhooks that notify an organization of its events. */

export interface WebhookRoutesParts {
  readonly guards: Guards;
  readonly alerts: Pick<Alerts, 'endpoints'>;
}

const anotherWebhookSecret = {
  instead: 'Its secret was returned only once: "POST /v1/webhooks/{id}/rotate" creates a new one.',
};
const collection = '/v1/webhooks';
const one = `${collection}/{id}`;
const params = z.object({ id: idText('wh') });
const query = z.strictObject(organizationQuery);

function found(endpoint: Endpoint | null): Endpoint {
  if (endpoint === null) throw notFound('wh');
  return endpoint;
}

const withSecret = ({ endpoint, secret }: EndpointWithSecret) => ({ ...toWebhook(endpoint), secret });

export function registerWebhookRoutes(app: ApiApp, parts: WebhookRoutesParts): void {
  registerCollection(app, parts);
  registerReading(app, parts);
  registerChanges(app, parts);
}

function registerCollection(app: ApiApp, { guards, alerts: { endpoints } }: WebhookRoutesParts): void {
  const list = createRoute({
    method: 'get',
    path: collection,
    security: bearerSecurity,
    middleware: [guards.may('webhooks')],
    request: { query: z.strictObject({ ...listQuery, ...organizationQuery }) },
    responses: { 200: jsonAnswer(webhookListSchema, 'Webhooks, without their secrets') },
  });
  app.openapi(list, async (context) => {
    const { limit, cursor } = context.req.valid('query');
    const organizationId = await guards.organizationOf(context);
    const before = readCursor(cursor, (position) => (isUuid(position) ? position : null));
    const page = await endpoints.list({ organizationId, limit, before });
    const next = page.more ? (page.endpoints.at(-1)?.id ?? null) : null;
    return context.json(toListPage(page.endpoints.map(toWebhook), next), 200);
  });
  const create = createRoute({
    method: 'post',
    path: collection,
    security: bearerSecurity,
    middleware: [guards.may('webhooks'), guards.smallJsonBody, guards.once('wh', anotherWebhookSecret)],
    request: { query, headers: onceHeaders, body: jsonRequest(createSchema) },
    responses: { 201: jsonAnswer(createdWebhookSchema, 'The webhook with its signing secret') },
  });
  app.openapi(create, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const made = await endpoints.create({ organizationId, ...context.req.valid('json') }, authorOf(context));
    return context.json(withSecret(made), 201);
  });
}

function registerReading(app: ApiApp, { guards, alerts: { endpoints } }: WebhookRoutesParts): void {
  const get = createRoute({
    method: 'get',
    path: one,
    security: bearerSecurity,
    middleware: [guards.may('webhooks')],
    request: { params, query },
    responses: { 200: jsonAnswer(webhookSchema, 'The webhook, without its secret') },
  });
  app.openapi(get, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const id = requireId('wh', context.req.valid('param').id);
    return context.json(toWebhook(found(await endpoints.find({ organizationId, id }))), 200);
  });
}

function registerChanges(app: ApiApp, { guards, alerts: { endpoints } }: WebhookRoutesParts): void {
  const shared = { security: bearerSecurity };
  const patch = createRoute({
    method: 'patch',
    path: one,
    ...shared,
    middleware: [guards.may('webhooks'), guards.smallJsonBody],
    request: { params, query, body: jsonRequest(patchSchema) },
    responses: { 200: jsonAnswer(webhookSchema, 'The webhook') },
  });
  app.openapi(patch, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const ref = { organizationId, id: requireId('wh', context.req.valid('param').id) };
    const changed = await endpoints.patch(ref, context.req.valid('json'), authorOf(context));
    return context.json(toWebhook(found(changed)), 200);
  });
  const rotate = createRoute({
    method: 'post',
    path: `${one}/rotate`,
    ...shared,
    middleware: [guards.may('webhooks'), guards.smallJsonBody],
    request: { params, query, body: jsonRequest(rotateSchema) },
    responses: { 200: jsonAnswer(createdWebhookSchema, 'The webhook with its new signing secret') },
  });
  app.openapi(rotate, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const ref = { organizationId, id: requireId('wh', context.req.valid('param').id) };
    const { grace_seconds: graceSeconds, secret_rotated_at: rotatedAt } = context.req.valid('json');
    const made = await endpoints.rotate(ref, { graceMs: graceSeconds * 1000, rotatedAt }, authorOf(context));
    if (made === null) throw notFound('wh');
    return context.json(withSecret(made), 200);
  });
  const remove = createRoute({
    method: 'delete',
    path: one,
    ...shared,
    middleware: [guards.may('webhooks')],
    request: { params, query },
    responses: { 200: jsonAnswer(deletedWebhookSchema, 'Confirmation') },
  });
  app.openapi(remove, async (context) => {
    const organizationId = await guards.organizationOf(context);
    const id = requireId('wh', context.req.valid('param').id);
    if (!(await endpoints.remove({ organizationId, id }, authorOf(context)))) throw notFound('wh');
    return context.json({ id: formatId('wh', id), object: 'webhook' as const, deleted: true as const }, 200);
  });
}
