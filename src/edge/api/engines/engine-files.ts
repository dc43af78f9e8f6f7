import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import { type ApiApp, bearerSecurity, jsonAnswer, jsonRequest } from '#edge/api/shared/shared.ts';
import { engineFileCheckSchema, engineFileSchema } from '#edge/contract/engines.ts';
import { type EngineRoutesParts, findEngine, idParams } from './engine-routes.ts';

/** Routes that read and check engine files. They write nothing. */

const textCharsMax = 262_144;

const checkBody = z.strictObject({
  name: z
    .string()
    .max(200)
    .regex(
      /^(?!hosts\.yaml$)[A-Za-z0-9_][A-Za-z0-9._-]*\.yaml$/,
      'must be the name of an engine file, such as chat.yaml',
    )
    .openapi({ description: 'Name of the file. A file of this name is left out of the check', example: 'chat.yaml' }),
  text: z.string().max(textCharsMax).openapi({ description: 'Text of the file', example: 'version: 1\nid: chat\n' }),
});

export function registerEngineFiles(app: ApiApp, { guards, operations }: EngineRoutesParts): void {
  const get = createRoute({
    method: 'get',
    path: '/v1/admin/engines/{id}/file',
    security: bearerSecurity,
    middleware: [guards.may('engines')],
    request: { params: idParams, query: z.strictObject({}) },
    responses: { 200: jsonAnswer(engineFileSchema, 'The engine file') },
  });
  app.openapi(get, async (context) => {
    const { id } = context.req.valid('param');
    const { file } = findEngine(operations, id).definition;
    const text = await operations.folder.textOf(file);
    if (text === null) {
      throw new AppError('not_found', {
        message: `${file} cannot be read: the file was deleted since the engine files were loaded, or a run declares the engine.`,
      });
    }
    return context.json({ object: 'engine_file' as const, engine: id, file, text }, 200);
  });

  const check = createRoute({
    method: 'post',
    path: '/v1/admin/engine-files/check',
    security: bearerSecurity,
    middleware: [guards.may('engines'), guards.jsonBody],
    request: { body: jsonRequest(checkBody) },
    responses: { 200: jsonAnswer(engineFileCheckSchema, 'The problems of the text') },
  });
  app.openapi(check, (context) => {
    const { name, text } = context.req.valid('json');
    const problems = operations.folder.check(name, text).map(({ line, field, message }) => ({ line, field, message }));
    return context.json({ object: 'engine_file_check' as const, problems }, 200);
  });
}
