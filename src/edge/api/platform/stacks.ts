import { createHash } from 'node:crypto';
import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { answeredMeanwhile } from '#core/stored-requests/stored-requests.ts';
import type { PackageSource, StackFields } from '#core/stacks/stacks.ts';
import {
  type ApiApp,
  bearerSecurity,
  jsonAnswer,
  jsonRequest,
  notFound,
  onceHeaders,
  pageQuery,
  toPage,
} from '#edge/api/shared/shared.ts';
import { nameText } from '#edge/contract/fields.ts';
import { pushedStackSchema, stackPageSchema, stackSchema } from '#edge/contract/stacks.ts';
import { stackPatchSchema, stackVersionQuery, toStackAnswer } from './stack-schemas.ts';
import { createUploadBody, fetchSchema, type UploadParts, uploadSchema } from './stack-upload.ts';
import {
  explainPackage,
  registerStackVersions,
  stackAuthorOf,
  stackParams as params,
  type StackVersionParts,
} from './stack-versions.ts';
import { viewerOf } from './stack-viewer.ts';

/**
 * The catalog of stacks. Any key may read it. People and management keys upload stacks and change their own; changes of
 * global stacks need a platform administrator.
 */

export interface StackRoutesParts extends UploadParts, StackVersionParts {}

const path = '/v1/stacks';
const versionQuery = z.strictObject({
  version: stackVersionQuery.openapi({ description: 'Version; default is the newest one' }),
});

export function registerStackRoutes(app: ApiApp, parts: StackRoutesParts): void {
  registerList(app, parts);
  registerReading(app, parts);
  registerStackVersions(app, parts);
  registerIcon(app, parts);
  registerUpload(app, parts);
  registerChanges(app, parts);
}

function registerList(app: ApiApp, { guards, stacks, runs }: StackRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('stacks.read')],
    request: {
      query: z.strictObject({
        ...pageQuery,
        search: nameText(200).optional().openapi({ description: 'Text in name, title or description' }),
        category: nameText(200).optional().openapi({ description: 'Only stacks of this category' }),
      }),
    },
    responses: { 200: jsonAnswer(stackPageSchema, 'A page of stacks') },
  });
  app.openapi(route, async (context) => {
    const { search = null, category = null, ...asked } = context.req.valid('query');
    const viewer = viewerOf(context);
    const found = await stacks.list({ viewer, search, category, ...asked });
    const mirrored = runs.mirrored();
    const shown = found.stacks.map((stack) => toStackAnswer(stack, viewer, mirrored));
    return context.json(toPage(shown, asked, found.total), 200);
  });
}

function registerReading(app: ApiApp, { guards, stacks, runs }: StackRoutesParts): void {
  const get = createRoute({
    method: 'get',
    path: `${path}/{name}`,
    security: bearerSecurity,
    middleware: [guards.may('stacks.read')],
    request: { params, query: versionQuery },
    responses: { 200: jsonAnswer(stackSchema, 'The stack') },
  });
  app.openapi(get, async (context) => {
    const viewer = viewerOf(context);
    const stack = await stacks.find(viewer, context.req.valid('param').name, context.req.valid('query').version);
    if (stack === null) throw notFound('stack');
    return context.json(toStackAnswer(stack, viewer, runs.mirrored()), 200);
  });
  const download = createRoute({
    method: 'get',
    path: `${path}/{name}/download`,
    security: bearerSecurity,
    middleware: [guards.may('stacks.read')],
    request: { params, query: versionQuery },
    responses: {
      200: {
        description: 'The zip',
        content: { 'application/zip': { schema: z.any().openapi({ type: 'string', format: 'binary' }) } },
      },
    },
  });
  app.openapi(download, async (context) => {
    const { version } = context.req.valid('query');
    const { stack, zip } = await stacks.download(viewerOf(context), context.req.valid('param').name, version);
    return context.body(new Uint8Array(zip), 200, {
      'content-type': 'application/zip',
      'content-disposition': `attachment; filename="${stack.name}-${stack.version.number}.zip"`,
      'x-content-type-options': 'nosniff',
      etag: `"${stack.version.sha256}"`,
    });
  });
}

/** Registers the icon route, which uses `stayOpen`: a slow image host delays no other read of the caller. */
function registerIcon(app: ApiApp, { guards, stacks }: StackRoutesParts): void {
  const route = createRoute({
    method: 'get',
    path: `${path}/{name}/icon`,
    security: bearerSecurity,
    middleware: [guards.may('stacks.read')],
    request: { params },
    responses: {
      200: {
        description: 'The image',
        content: { 'image/*': { schema: z.any().openapi({ type: 'string', format: 'binary' }) } },
      },
    },
  });
  app.openapi(route, async (context) => {
    await guards.stayOpen(context, 'stacks.read');
    const image = await stacks.icon(viewerOf(context), context.req.valid('param').name);
    if (image === null)
      throw new AppError('not_found', { message: 'The stack has no icon image, or the image could not be loaded.' });
    return context.body(new Uint8Array(image.bytes), 200, {
      'content-type': image.type,
      'content-security-policy': "default-src 'none'; sandbox",
      'x-content-type-options': 'nosniff',
    });
  });
}

function registerUpload(app: ApiApp, { guards, stacks, ...parts }: StackRoutesParts): void {
  const route = createRoute({
    method: 'post',
    path,
    security: bearerSecurity,
    middleware: [
      guards.may('stacks', 'own'),
      guards.slowly,
      createUploadBody(parts),
      guards.onceRead('stack', { status: 200, beside: { outcome: 'unchanged' } }),
    ],
    request: {
      headers: onceHeaders,
      body: {
        content: { 'multipart/form-data': { schema: uploadSchema }, 'application/json': { schema: fetchSchema } },
      },
    },
    responses: {
      200: jsonAnswer(pushedStackSchema, 'The stack; it has a new version if the package changed'),
      201: jsonAnswer(pushedStackSchema, 'The new stack'),
    },
  });
  app.openapi(route, async (context) => {
    const isJson = context.req.header('content-type')?.startsWith('application/json') === true;
    const body = isJson ? context.req.valid('json') : context.req.valid('form');
    const asked = 'file' in body ? await sourceOfForm(body) : sourceOfJson(body);
    guards.setContent(context, contentOf(asked));
    if (await guards.isRepeated(context)) throw answeredMeanwhile();
    const { stack, outcome } = await explainPackage(stacks.push(asked.source, asked.fields, stackAuthorOf(context)));
    const isNew = outcome === 'created';
    if (isNew) context.header('location', `${path}/${stack.name}`);
    const shown = toStackAnswer(stack, viewerOf(context), parts.runs.mirrored());
    return context.json({ ...shown, outcome }, isNew ? 201 : 200);
  });
}

interface AskedPush {
  readonly source: PackageSource;
  readonly fields: StackFields;
}

function sourceOfJson({ url, ...fields }: z.output<typeof fetchSchema>): AskedPush {
  return { source: { kind: 'url', url }, fields: toFields(fields) };
}

async function sourceOfForm({ file, ...fields }: z.output<typeof uploadSchema>): Promise<AskedPush> {
  const bytes = Buffer.from(await file.arrayBuffer());
  return { source: { kind: 'zip', bytes, fileName: file.name }, fields: toFields(fields) };
}

/** Identifies the content of a push, without the boundary of its form. */
function contentOf({ source, fields }: AskedPush): string {
  const from =
    source.kind === 'url' ? [source.url] : [source.fileName, createHash('sha256').update(source.bytes).digest('hex')];
  return JSON.stringify([source.kind, ...from, fields]);
}

type SaidFields = Omit<z.output<typeof fetchSchema>, 'url'>;

function toFields({ name, title, description, category, icon }: SaidFields): StackFields {
  return {
    name: name ?? null,
    title: title ?? null,
    description: description ?? null,
    category: category ?? null,
    icon: icon ?? null,
  };
}

function registerChanges(app: ApiApp, { guards, stacks, runs }: StackRoutesParts): void {
  const patch = createRoute({
    method: 'patch',
    path: `${path}/{name}`,
    security: bearerSecurity,
    middleware: [guards.may('stacks', 'own'), guards.jsonBody],
    request: { params, body: jsonRequest(stackPatchSchema) },
    responses: { 200: jsonAnswer(stackSchema, 'The stack') },
  });
  app.openapi(patch, async (context) => {
    const { name } = context.req.valid('param');
    const stack = await stacks.patch(name, context.req.valid('json'), stackAuthorOf(context));
    return context.json(toStackAnswer(stack, viewerOf(context), runs.mirrored()), 200);
  });
  const remove = createRoute({
    method: 'delete',
    path: `${path}/{name}`,
    security: bearerSecurity,
    middleware: [guards.may('stacks', 'own')],
    request: { params },
    responses: { 204: { description: 'The stack was deleted' } },
  });
  app.openapi(remove, async (context) => {
    await stacks.remove(context.req.valid('param').name, stackAuthorOf(context));
    return context.body(null, 204);
  });
}
