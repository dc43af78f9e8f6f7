import { createRoute, z } from '@hono/zod-openapi';
import { isUuid } from '#base/id.ts';
import type { Alerts } from '#core/alerts/alerts.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  listQuery,
  notFound,
  organizationQuery,
  readCursor,
  requireId,
  toListPage,
} from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import { deliveryListSchema, deliverySchema } from '#edge/contract/webhooks.ts';
import type { HttpContext } from '#edge/http/http.ts';
import { toDelivery } from './webhook-schemas.ts';

/** Deliveries of a webhook with their results. */

export interface WebhookDeliveryRoutesParts {
  readonly guards: Guards;
  readonly alerts: Pick<Alerts, 'deliveries'>;
}

const one = '/v1/webhooks/{id}';
const params = z.object({ id: idText('wh') });
const query = z.strictObject(organizationQuery);

export function registerWebhookDeliveryRoutes(app: ApiApp, { guards, alerts }: WebhookDeliveryRoutesParts): void {
  const { deliveries } = alerts;
  const shared = { security: bearerSecurity, middleware: [guards.may('webhooks')] };
  const refOf = async (context: HttpContext, id: string) => ({
    organizationId: await guards.organizationOf(context),
    id: requireId('wh', id),
  });
  const list = createRoute({
    method: 'get',
    path: `${one}/deliveries`,
    ...shared,
    request: { params, query: z.strictObject({ ...listQuery, ...organizationQuery }) },
    responses: { 200: jsonAnswer(deliveryListSchema, 'Deliveries') },
  });
  app.openapi(list, async (context) => {
    const { limit, cursor } = context.req.valid('query');
    const ref = await refOf(context, context.req.valid('param').id);
    const before = readCursor(cursor, (position) => (isUuid(position) ? position : null));
    const page = await deliveries.list({ ...ref, limit, before });
    if (page === null) throw notFound('wh');
    const next = page.more ? (page.deliveries.at(-1)?.id ?? null) : null;
    return context.json(toListPage(page.deliveries.map(toDelivery), next), 200);
  });
  const test = createRoute({
    method: 'post',
    path: `${one}/test`,
    ...shared,
    request: { params, query },
    responses: { 202: jsonAnswer(deliverySchema, 'Pending delivery') },
  });
  app.openapi(test, async (context) => {
    const made = await deliveries.test(await refOf(context, context.req.valid('param').id));
    if (made === null) throw notFound('wh');
    return context.json(toDelivery(made), 202);
  });
  const replay = createRoute({
    method: 'post',
    path: `${one}/deliveries/{delivery}/replay`,
    ...shared,
    request: { params: params.extend({ delivery: idText('dlv') }), query },
    responses: { 202: jsonAnswer(deliverySchema, 'Pending delivery') },
  });
  app.openapi(replay, async (context) => {
    const { id, delivery } = context.req.valid('param');
    const ref = await refOf(context, id);
    const again = await deliveries.replay(ref, requireId('dlv', delivery));
    if (again === null) throw notFound('dlv');
    return context.json(toDelivery(again), 202);
  });
}
