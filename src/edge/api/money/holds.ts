import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { formatId, isUuid, uuidTimeMs } from '#base/id.ts';
import { formatUsd, PICO_PER_MICRO } from '#base/money.ts';
import type { HoldReview, OrphanedHold } from '#core/admission/admission.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  listQuery,
  readCursor,
  toListPage,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import { nameText } from '#edge/contract/fields.ts';
import { type HoldAnswer, holdListSchema, releasedHoldSchema } from '#edge/contract/wallet.ts';
import { authorOf } from '#edge/http/http.ts';

export interface HoldRoutesParts {
  readonly guards: Guards;
  readonly holds: HoldReview;
}

const heldOf = ({ heldMicroUsd }: OrphanedHold): string => formatUsd(heldMicroUsd * PICO_PER_MICRO);

function toBody(hold: OrphanedHold): HoldAnswer {
  return {
    id: hold.requestId,
    object: 'hold',
    organization_id: formatId('org', hold.organizationId),
    key_id: formatId('key', hold.keyId),
    gateway_id: hold.gatewayId,
    held: heldOf(hold),
    spooled: hold.isSpooled,
    created_at: toUnixSeconds(uuidTimeMs(hold.requestId)),
  };
}

const refusals = {
  running: 'The gateway of this request is running and releases the hold when the request is recorded.',
  booked: 'The request is already recorded; its hold is released within HEADGATE_LEASE_SECONDS.',
};

const notThere = (): AppError =>
  new AppError('not_found', { message: 'There is no such hold. It may have been released already.' });

/** Registers the routes for wallet holds left by stopped gateways, for platform administrators. */
export function registerHoldRoutes(app: ApiApp, { guards, holds }: HoldRoutesParts): void {
  const common = { security: bearerSecurity };
  const list = createRoute({
    ...common,
    middleware: [guards.may('books')],
    method: 'get',
    path: '/v1/admin/holds',
    request: { query: z.strictObject(listQuery) },
    responses: { 200: jsonAnswer(holdListSchema, 'One page') },
  });
  app.openapi(list, async (context) => {
    const { limit, cursor } = context.req.valid('query');
    const before = readCursor(cursor, (position) => (isUuid(position) ? position : null));
    const all = await holds.list();
    const found = all.filter(({ requestId }) => before === null || requestId < before);
    const page = found.slice(0, limit);
    const next = found.length > limit ? (page.at(-1)?.requestId ?? null) : null;
    return context.json(toListPage(page.map(toBody), next), 200);
  });
  const release = createRoute({
    ...common,
    middleware: [guards.may('books'), guards.jsonBody],
    method: 'post',
    path: '/v1/admin/holds/{id}/release',
    request: {
      params: z.object({ id: z.string().openapi({ description: 'Id of the request' }) }),
      body: jsonRequest(
        z.strictObject({ reason: nameText(1000).openapi({ description: 'Reason for the audit log' }) }),
      ),
    },
    responses: { 200: jsonAnswer(releasedHoldSchema, 'The hold was released') },
  });
  app.openapi(release, async (context) => {
    const id = context.req.valid('param').id.toLowerCase();
    if (!isUuid(id)) throw notThere();
    const { reason } = context.req.valid('json');
    const result = await holds.release({ requestId: id, reason, author: authorOf(context) });
    if (result.kind === 'not_found') throw notThere();
    if (result.kind !== 'released') throw new AppError('conflict', { message: refusals[result.kind] });
    return context.json({ id, object: 'hold' as const, released: true as const, held: heldOf(result.hold) }, 200);
  });
}
