import { createRoute, z } from '@hono/zod-openapi';
import type { Runs } from '#core/runs/runs.ts';
import { PackageRefusedError, type PushedStack, type StackAuthor, type Stacks } from '#core/stacks/stacks.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  onceHeaders,
  pageQuery,
  toPage,
} from '#edge/api/shared/shared.ts';
import { pushedStackSchema, stackDiffSchema, stackVersionPageSchema } from '#edge/contract/stacks.ts';
import { authorOf, type HttpContext, ValidationError } from '#edge/http/http.ts';
import { stackVersionNumber, stackVersionQuery, toDiffAnswer, toStackAnswer, toVersionEntry } from './stack-schemas.ts';
import { viewerOf } from './stack-viewer.ts';

/** The versions of a stack: their list, what differs between two of them, and the way back to an earlier one. */

export interface StackVersionParts {
  readonly guards: Guards;
  readonly stacks: Stacks;
  readonly runs: Pick<Runs, 'mirrored'>;
}

const path = '/v1/stacks';
export const stackParams = z.object({
  name: z.string().openapi({ description: 'Name or id of the stack', example: 'scheduler' }),
});

export function stackAuthorOf(context: HttpContext): StackAuthor {
  const { organizationId } = context.get('caller');
  return { viewer: viewerOf(context), organizationId, author: authorOf(context) };
}

/** @throws ValidationError with the problems of a rejected package */
export async function explainPackage(pushed: Promise<PushedStack>): Promise<PushedStack> {
  try {
    return await pushed;
  } catch (error) {
    if (error instanceof PackageRefusedError) throw new ValidationError(error.problems, 'package_invalid');
    throw error;
  }
}

export function registerStackVersions(app: ApiApp, parts: StackVersionParts): void {
  registerList(app, parts);
  registerDiff(app, parts);
  registerRevert(app, parts);
}

function registerList(app: ApiApp, { guards, stacks }: StackVersionParts): void {
  const route = createRoute({
    method: 'get',
    path: `${path}/{name}/versions`,
    security: bearerSecurity,
    middleware: [guards.may('stacks.read')],
    request: { params: stackParams, query: z.strictObject(pageQuery) },
    responses: { 200: jsonAnswer(stackVersionPageSchema, 'A page of versions') },
  });
  app.openapi(route, async (context) => {
    const viewer = viewerOf(context);
    const asked = context.req.valid('query');
    const { stack, versions, total } = await stacks.versions(viewer, context.req.valid('param').name, asked);
    const shown = versions.map((kept) => toVersionEntry(kept, stack, viewer));
    return context.json(toPage(shown, asked, total), 200);
  });
}

function registerDiff(app: ApiApp, { guards, stacks }: StackVersionParts): void {
  const route = createRoute({
    method: 'get',
    path: `${path}/{name}/diff`,
    security: bearerSecurity,
    middleware: [guards.may('stacks.read')],
    request: {
      params: stackParams,
      query: z.strictObject({
        from: stackVersionQuery.openapi({ description: 'Version; default is the one before `to`' }),
        to: stackVersionQuery.openapi({ description: 'Version; default is the newest one' }),
      }),
    },
    responses: { 200: jsonAnswer(stackDiffSchema, 'What differs') },
  });
  app.openapi(route, async (context) => {
    const { from = null, to = null } = context.req.valid('query');
    const found = await stacks.compare(viewerOf(context), context.req.valid('param').name, { from, to });
    return context.json(toDiffAnswer(found), 200);
  });
}

const revertSchema = z
  .strictObject({
    version: stackVersionNumber.optional().openapi({ description: 'Version; default is the one before the newest' }),
  })
  .openapi('RevertStack');

function registerRevert(app: ApiApp, { guards, stacks, runs }: StackVersionParts): void {
  const route = createRoute({
    method: 'post',
    path: `${path}/{name}/revert`,
    security: bearerSecurity,
    middleware: [
      guards.may('stacks', 'own'),
      guards.slowly,
      guards.jsonBody,
      guards.once('stack', { at: path, status: 200, beside: { outcome: 'unchanged' } }),
    ],
    request: { params: stackParams, headers: onceHeaders, body: jsonRequest(revertSchema) },
    responses: { 200: jsonAnswer(pushedStackSchema, 'The stack, with its new version') },
  });
  app.openapi(route, async (context) => {
    const { version = null } = context.req.valid('json');
    const { name } = context.req.valid('param');
    const { stack, outcome } = await explainPackage(stacks.revert(name, version, stackAuthorOf(context)));
    return context.json({ ...toStackAnswer(stack, viewerOf(context), runs.mirrored()), outcome }, 200);
  });
}
