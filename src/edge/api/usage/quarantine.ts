import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { formatId, isUuid } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { QuarantinedRecord, QuarantineReview } from '#core/metering/metering.ts';
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
import {
  bookedRecordSchema,
  discardedRecordSchema,
  type QuarantinedRecordAnswer,
  quarantinedRecordListSchema,
  wholeQuarantinedRecordSchema,
} from '#edge/contract/usage.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';

export interface QuarantineRoutesParts {
  readonly guards: Guards;
  readonly quarantine: QuarantineReview;
}

function toBody(found: QuarantinedRecord): QuarantinedRecordAnswer {
  return {
    id: found.id,
    object: 'quarantined_record',
    organization_id: found.organizationId === null ? null : formatId('org', found.organizationId),
    error: found.error,
    sql_state: found.sqlState,
    created_at: toUnixSeconds(found.createdAt.getTime()),
  };
}

function shownRecord(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text;
  }
}

const notThere = (): AppError =>
  new AppError('not_found', {
    message: 'There is no such record in quarantine. It may have been retried or discarded already.',
  });

const alreadyBooked = (): AppError =>
  new AppError('conflict', {
    message:
      'This record cannot be discarded, because the usage of its request is already recorded. Retry the record ' +
      'instead: that charges nothing more and removes it from quarantine.',
  });

const idParams = z.object({ id: z.string().openapi({ description: 'Id of the request' }) });
const reason = nameText(1000).openapi({ description: 'Reason for the audit log' });

function decisionOf(context: HttpContext, text: string) {
  const id = text.toLowerCase();
  if (!isUuid(id)) throw notThere();
  return { id, author: authorOf(context), organizationId: context.get('caller').organizationId };
}

const common = (guards: Guards) => ({ security: bearerSecurity, middleware: [guards.may('books')] });

/** Registers the routes for usage records that PostgreSQL rejected, for platform administrators. */
export function registerQuarantineRoutes(app: ApiApp, parts: QuarantineRoutesParts): void {
  registerReading(app, parts);
  registerDecisions(app, parts);
}

function registerReading(app: ApiApp, { guards, quarantine }: QuarantineRoutesParts): void {
  const list = createRoute({
    ...common(guards),
    method: 'get',
    path: '/v1/admin/quarantine',
    request: { query: z.strictObject(listQuery) },
    responses: { 200: jsonAnswer(quarantinedRecordListSchema, 'One page') },
  });
  app.openapi(list, async (context) => {
    const { limit, cursor } = context.req.valid('query');
    const before = readCursor(cursor, (position) => (isUuid(position) ? position : null));
    const found = await quarantine.list(limit + 1, before);
    const page = found.slice(0, limit);
    const next = found.length > limit ? (page.at(-1)?.id ?? null) : null;
    return context.json(toListPage(page.map(toBody), next), 200);
  });
  const get = createRoute({
    ...common(guards),
    method: 'get',
    path: '/v1/admin/quarantine/{id}',
    request: { params: idParams },
    responses: { 200: jsonAnswer(wholeQuarantinedRecordSchema, 'The record') },
  });
  app.openapi(get, async (context) => {
    const id = context.req.valid('param').id.toLowerCase();
    const found = isUuid(id) ? await quarantine.read(id) : null;
    if (found === null) throw notThere();
    return context.json({ ...toBody(found), record: shownRecord(found.record) }, 200);
  });
}

function registerDecisions(app: ApiApp, { guards, quarantine }: QuarantineRoutesParts): void {
  const retry = createRoute({
    ...common(guards),
    method: 'post',
    path: '/v1/admin/quarantine/{id}/retry',
    request: { params: idParams },
    responses: { 200: jsonAnswer(bookedRecordSchema, 'The usage was recorded and charged') },
  });
  app.openapi(retry, async (context) => {
    const decision = decisionOf(context, context.req.valid('param').id);
    const result = await quarantine.retry(decision);
    if (result.kind === 'not_found') throw notThere();
    if (result.kind === 'refused') {
      throw new AppError('conflict', { message: `The record stays in quarantine: ${result.error}.` });
    }
    const charged = formatUsd(result.chargedPicoUsd);
    return context.json(
      { id: decision.id, object: 'quarantined_record' as const, booked: true as const, charged },
      200,
    );
  });
  const discard = createRoute({
    ...common(guards),
    method: 'post',
    path: '/v1/admin/quarantine/{id}/discard',
    middleware: [guards.may('books'), guards.jsonBody],
    request: { params: idParams, body: jsonRequest(z.strictObject({ reason })) },
    responses: { 200: jsonAnswer(discardedRecordSchema, 'The record was discarded') },
  });
  app.openapi(discard, async (context) => {
    const decision = decisionOf(context, context.req.valid('param').id);
    const result = await quarantine.discard(decision, context.req.valid('json').reason);
    if (result === 'not_found') throw notThere();
    if (result === 'booked') throw alreadyBooked();
    return context.json({ id: decision.id, object: 'quarantined_record' as const, discarded: true as const }, 200);
  });
}
