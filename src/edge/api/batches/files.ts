import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import type { FileRef, Files, StoredFile } from '#core/files/files.ts';
import {
  type ApiApp,
  bearerSecurity,
  creationOrder,
  type Guards,
  jsonAnswer,
  notFound,
  onceHeaders,
  organizationQuery,
  readAfter,
  requireId,
  toCursorPage,
  toUnixSeconds,
} from '#edge/api/shared/shared.ts';
import { keysSeen, type OwnKeys } from '#edge/api/usage/usage.ts';
import { idText } from '#edge/contract/fields.ts';
import { deletedFileSchema, type FileAnswer, fileListSchema, fileSchema } from '#edge/contract/batches.ts';
import { authorOf, type HttpContext } from '#edge/http/http.ts';
import { type FileUploadParts, receiveFile } from './file-upload.ts';

/** Files in OpenAI's form, only for the purpose `batch`. */

export interface FileRoutesParts extends FileUploadParts {
  readonly guards: Guards;
  readonly keys: OwnKeys;
}

/** Most items of a page, as in OpenAI's API. */
const limitMax = 10_000;

const listQuery = z.strictObject({
  ...organizationQuery,
  after: z.string().optional().openapi({ description: '`last_id` of the previous page' }),
  limit: z
    .string()
    .regex(/^[1-9]\d{0,4}$/, 'must be a whole number of 1 or more')
    .transform(Number)
    .refine((limit) => limit <= limitMax, `must be at most ${limitMax}`)
    .default(limitMax)
    .openapi({ type: 'integer', minimum: 1, maximum: limitMax, default: limitMax, description: 'Items per page' }),
  order: creationOrder,
  purpose: z.string().optional().openapi({ example: 'batch', description: 'Only files with this purpose' }),
});

const idRequest = { params: z.object({ id: idText('file') }), query: z.strictObject(organizationQuery) };

export function toFileAnswer(file: StoredFile): FileAnswer {
  return {
    id: formatId('file', file.id),
    object: 'file',
    bytes: file.bytes,
    created_at: toUnixSeconds(file.createdAtMs),
    expires_at: toUnixSeconds(file.expiresAtMs),
    filename: file.filename,
    purpose: file.purpose,
    status: 'processed',
    status_details: null,
  };
}

export function registerFileRoutes(app: ApiApp, parts: FileRoutesParts): void {
  registerUpload(app, parts);
  registerReads(app, parts);
  registerContent(app, parts);
}

async function refOf({ guards, keys }: FileRoutesParts, context: HttpContext, id: string): Promise<FileRef> {
  const organizationId = await guards.organizationOf(context);
  return { organizationId, keyIds: await keysSeen(keys, context), id: requireId('file', id) };
}

async function requireFile({ files }: { readonly files: Files }, ref: FileRef): Promise<StoredFile> {
  const file = await files.get(ref);
  if (file === null) throw notFound('file');
  return file;
}

function registerUpload(app: ApiApp, parts: FileRoutesParts): void {
  const { guards } = parts;
  const form = {
    type: 'object' as const,
    required: ['file', 'purpose'],
    properties: {
      file: { type: 'string' as const, format: 'binary', description: 'JSON Lines, at most 100 MiB' },
      purpose: { type: 'string' as const, enum: ['batch'] },
      'expires_after[anchor]': { type: 'string' as const, enum: ['created_at'] },
      'expires_after[seconds]': {
        type: 'integer' as const,
        minimum: 3600,
        maximum: 2_592_000,
        description: 'Seconds after creation until the file is deleted',
      },
    },
  };
  const route = createRoute({
    method: 'post',
    path: '/v1/files',
    security: bearerSecurity,
    middleware: [guards.may('files', 'own'), guards.streamedBody, guards.onceRead('file', { status: 200 })],
    // Plain JSON Schema, not zod: a validator would read the whole file into memory.
    request: {
      query: z.strictObject(organizationQuery),
      headers: onceHeaders,
      body: { required: true, content: { 'multipart/form-data': { schema: form } } },
    },
    responses: { 200: jsonAnswer(fileSchema, 'The file') },
  });
  app.openapi(route, async (context) => {
    const organizationId = await guards.organizationOf(context);
    return context.json(toFileAnswer(await receiveFile(parts, context, organizationId)), 200);
  });
}

function registerReads(app: ApiApp, parts: FileRoutesParts): void {
  const { guards, keys, files } = parts;
  const shared = { security: bearerSecurity, middleware: [guards.may('files', 'own')] };
  const listRoute = createRoute({
    ...shared,
    method: 'get',
    path: '/v1/files',
    request: { query: listQuery },
    responses: { 200: jsonAnswer(fileListSchema, 'A page of files') },
  });
  app.openapi(listRoute, async (context) => {
    const { after, limit, order, purpose } = context.req.valid('query');
    const scope = { organizationId: await guards.organizationOf(context), keyIds: await keysSeen(keys, context) };
    const page = { after: readAfter('file', after), limit, order };
    // Files of any other purpose do not exist here.
    if (purpose !== undefined && purpose !== 'batch' && purpose !== 'batch_output') {
      return context.json(toCursorPage([], false), 200);
    }
    const found = await files.list({ ...scope, ...page, purpose: purpose ?? null });
    return context.json(toCursorPage(found.files.map(toFileAnswer), found.more), 200);
  });

  const getRoute = createRoute({
    ...shared,
    method: 'get',
    path: '/v1/files/{id}',
    request: idRequest,
    responses: { 200: jsonAnswer(fileSchema, 'The file') },
  });
  app.openapi(getRoute, async (context) => {
    const file = await requireFile(parts, await refOf(parts, context, context.req.valid('param').id));
    return context.json(toFileAnswer(file), 200);
  });

  const deleteRoute = createRoute({
    ...shared,
    method: 'delete',
    path: '/v1/files/{id}',
    request: idRequest,
    responses: { 200: jsonAnswer(deletedFileSchema, 'Confirmation') },
  });
  app.openapi(deleteRoute, async (context) => {
    const ref = await refOf(parts, context, context.req.valid('param').id);
    if (!(await files.remove(ref, authorOf(context)))) throw notFound('file');
    return context.json({ id: formatId('file', ref.id), object: 'file' as const, deleted: true as const }, 200);
  });
}

function registerContent(app: ApiApp, parts: FileRoutesParts): void {
  const { guards, files } = parts;
  const route = createRoute({
    method: 'get',
    path: '/v1/files/{id}/content',
    security: bearerSecurity,
    middleware: [guards.may('files', 'own')],
    request: idRequest,
    responses: {
      200: {
        description: 'Bytes of the file',
        content: { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } },
      },
    },
  });
  app.openapi(route, async (context) => {
    const file = await requireFile(parts, await refOf(parts, context, context.req.valid('param').id));
    const headers = {
      'content-type': 'application/octet-stream',
      'content-length': String(file.bytes),
      'content-disposition': `attachment; filename="${asciiName(file.filename)}"`,
      'cache-control': 'no-store',
    };
    return context.newResponse(streamOf(files.read(file.id), file.bytes), 200, headers);
  });
}

/** Returns a file name in ASCII, with `_` in place of other characters, quotes and backslashes. */
const asciiName = (name: string): string => name.replaceAll(/[^\x20-\x7e]|["\\]/g, '_');

/**
 * Streams a file. The stream fails if the file is deleted while it is read, so that the client does not take a part for
 * the whole file.
 */
function streamOf(chunks: AsyncGenerator<Buffer, void>, bytes: number): ReadableStream<Uint8Array> {
  let sent = 0;
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await chunks.next();
        if (done !== true) {
          sent += value.length;
          controller.enqueue(value);
        } else if (sent < bytes) controller.error(new Error('the file was deleted while it was read'));
        else controller.close();
      },
      async cancel() {
        await chunks.return();
      },
    },
    { highWaterMark: 0 },
  );
}
