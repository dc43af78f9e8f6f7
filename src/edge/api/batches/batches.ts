import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import { type Batch, batchEndpoints, type Batches, type BatchRef } from '#core/batches/batches.ts';
import {
  type ApiApp,
  bearerSecurity,
  cursorListQuery,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
  organizationQuery,
  readAfter,
  requireId,
  toCursorPage,
  toUnixSeconds,
  toUnixSecondsOrNull,
} from '#edge/api/shared/shared.ts';
import { keysSeen, type OwnKeys } from '#edge/api/usage/usage.ts';
import { type BatchAnswer, batchListSchema, batchSchema } from '#edge/contract/batches.ts';
import { idText } from '#edge/contract/fields.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';

export { registerFileRoutes } from './files.ts';

/** Batches in OpenAI's form. */

export interface BatchRoutesParts {
  readonly guards: Guards;
  readonly keys: OwnKeys;
  readonly batches: Batches;
}

/** Most pairs of metadata, as in OpenAI's API. */
const metadataMax = 16;
const metadataText = (lengthMax: number) =>
  z
    .string()
    .max(lengthMax, `must have at most ${lengthMax} characters`)
    .refine((text) => !text.includes('\0') && text.isWellFormed(), 'must be well-formed Unicode without NUL');

const metadata = z
  .record(metadataText(64), metadataText(512))
  .refine((pairs) => Object.keys(pairs).length <= metadataMax, `must have at most ${metadataMax} pairs`);

const newBatchSchema = z
  .strictObject({
    input_file_id: z.string().openapi({
      example: 'file_019ab1c2d3e47f008a1b2c3d4e5f6071',
      description: 'File from `POST /v1/files` with the requests',
    }),
    endpoint: z.enum(batchEndpoints).openapi({ description: 'Path of every request in the file' }),
    completion_window: z
      .literal('24h', 'must be 24h')
      .openapi({ description: 'Time after which requests that have not run expire' }),
    metadata: metadata.nullish().openapi({
      description: 'Up to 16 pairs of your own: names of up to 64 characters, values of up to 512',
    }),
    output_expires_after: z
      .strictObject({
        anchor: z.literal('created_at', 'must be created_at'),
        seconds: z
          .int()
          .min(3600, 'must be at least 3600')
          .max(2_592_000)
          .openapi({ description: 'Seconds after `anchor`' }),
      })
      .optional()
      .openapi({ description: 'When output files are deleted; default is the time that the operator has set' }),
  })
  .openapi('NewBatch');

function toBatchAnswer(batch: Batch): BatchAnswer {
  const fileId = (id: string | null): string | null => (id === null ? null : formatId('file', id));
  const { errors } = batch;
  return {
    id: formatId('batch', batch.id),
    object: 'batch',
    endpoint: batch.endpoint,
    model: batch.model,
    errors: errors.length === 0 ? null : { object: 'list', data: [...errors] },
    input_file_id: formatId('file', batch.inputFileId),
    completion_window: '24h',
    status: batch.status,
    output_file_id: fileId(batch.outputFileId),
    error_file_id: fileId(batch.errorFileId),
    created_at: toUnixSeconds(batch.createdAtMs),
    in_progress_at: toUnixSecondsOrNull(batch.inProgressAtMs),
    expires_at: toUnixSeconds(batch.expiresAtMs),
    finalizing_at: toUnixSecondsOrNull(batch.finalizingAtMs),
    completed_at: toUnixSecondsOrNull(batch.completedAtMs),
    failed_at: toUnixSecondsOrNull(batch.failedAtMs),
    expired_at: toUnixSecondsOrNull(batch.expiredAtMs),
    cancelling_at: toUnixSecondsOrNull(batch.cancellingAtMs),
    cancelled_at: toUnixSecondsOrNull(batch.cancelledAtMs),
    request_counts: batch.counts,
    metadata: batch.metadata,
    waiting_for: batch.waitingFor,
  };
}

async function refOf({ guards, keys }: BatchRoutesParts, context: HttpContext, id: string): Promise<BatchRef> {
  const organizationId = await guards.organizationOf(context);
  return { organizationId, keyIds: await keysSeen(keys, context), id: requireId('batch', id) };
}

export function registerBatchRoutes(app: ApiApp, parts: BatchRoutesParts): void {
  registerCreate(app, parts);
  registerReads(app, parts);
  registerCancel(app, parts);
}

function registerCreate(app: ApiApp, parts: BatchRoutesParts): void {
  const { guards, keys, batches } = parts;
  const route = createRoute({
    method: 'post',
    path: '/v1/batches',
    security: bearerSecurity,
    middleware: [guards.may('files', 'own'), guards.jsonBody, guards.once('batch', { status: 200 })],
    request: { query: z.strictObject(organizationQuery), headers: onceHeaders, body: jsonRequest(newBatchSchema) },
    responses: { 200: jsonAnswer(batchSchema, 'The batch') },
  });
  app.openapi(route, async (context) => {
    const body = context.req.valid('json');
    const { actor, organizationId: own, project } = context.get('caller');
    const organizationId = await guards.organizationOf(context);
    const inputFileId = requireId('file', body.input_file_id);
    const made = await batches.create(
      {
        organizationId,
        keyIds: await keysSeen(keys, context),
        projectId: project.id,
        // The batch is billed to the organization of its key, so a key of another organization is not recorded.
        keyId: actor.kind === 'key' && organizationId === own ? actor.key.id : null,
        endpoint: body.endpoint,
        inputFileId,
        metadata: body.metadata ?? null,
        outputKeepSeconds: body.output_expires_after?.seconds ?? null,
      },
      authorOf(context),
    );
    return context.json(toBatchAnswer(made), 200);
  });
}

function registerReads(app: ApiApp, parts: BatchRoutesParts): void {
  const { guards, keys, batches } = parts;
  const shared = { security: bearerSecurity, middleware: [guards.may('files', 'own')] };
  const listRoute = createRoute({
    ...shared,
    method: 'get',
    path: '/v1/batches',
    request: { query: z.strictObject(cursorListQuery) },
    responses: { 200: jsonAnswer(batchListSchema, 'A page of batches') },
  });
  app.openapi(listRoute, async (context) => {
    const { after, limit } = context.req.valid('query');
    const scope = { organizationId: await guards.organizationOf(context), keyIds: await keysSeen(keys, context) };
    const found = await batches.list({ ...scope, after: readAfter('batch', after), limit });
    return context.json(toCursorPage(found.batches.map(toBatchAnswer), found.more), 200);
  });

  const getRoute = createRoute({
    ...shared,
    method: 'get',
    path: '/v1/batches/{id}',
    request: { params: z.object({ id: idText('batch') }), query: z.strictObject(organizationQuery) },
    responses: { 200: jsonAnswer(batchSchema, 'The batch') },
  });
  app.openapi(getRoute, async (context) => {
    const batch = await batches.get(await refOf(parts, context, context.req.valid('param').id));
    if (batch === null) throw notFound('batch');
    return context.json(toBatchAnswer(batch), 200);
  });
}

function registerCancel(app: ApiApp, parts: BatchRoutesParts): void {
  const { guards, batches } = parts;
  const route = createRoute({
    method: 'post',
    path: '/v1/batches/{id}/cancel',
    security: bearerSecurity,
    middleware: [guards.may('files', 'own')],
    request: { params: z.object({ id: idText('batch') }), query: z.strictObject(organizationQuery) },
    responses: { 200: jsonAnswer(batchSchema, 'The batch, with status `cancelling`') },
  });
  app.openapi(route, async (context) => {
    const ref = await refOf(parts, context, context.req.valid('param').id);
    const batch = await batches.cancel(ref, authorOf(context));
    if (batch === null) throw notFound('batch');
    return context.json(toBatchAnswer(batch), 200);
  });
}
