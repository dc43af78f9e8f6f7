import { createRoute, z } from '@hono/zod-openapi';
import { AppError } from '#base/errors.ts';
import type { Accounts } from '#core/accounts/accounts.ts';
import type { Catalog } from '#core/catalog/catalog.ts';
import { noRateLimits, type ProjectRateLimits, type RateLimits } from '#core/rate-limits/rate-limits.ts';
import {
  type ApiApp,
  bearerSecurity,
  cursorListQuery,
  type Guards,
  jsonAnswer,
  jsonRequest,
  notFound,
  organizationQuery,
  requireId,
  toCursorPage,
} from '#edge/api/shared/shared.ts';
import { idText } from '#edge/contract/fields.ts';
import {
  idPrefix,
  type RateLimitAnswer,
  rateLimitFields,
  rateLimitId,
  rateLimitListSchema,
  rateLimitSchema,
} from '#edge/contract/organization-projects.ts';
import { authorOf, type HttpContext, ValidationError } from '#edge/http/http.ts';

/** Rate limits of a project per model, in the form of OpenAI's organization API. */

export interface OrganizationRateLimitParts {
  readonly guards: Guards;
  readonly rateLimits: Pick<ProjectRateLimits, 'list' | 'set'>;
  readonly accounts: Pick<Accounts, 'findProject' | 'readOrganization'>;
  readonly catalog: Pick<Catalog, 'list'>;
}

const path = '/v1/organization/projects/{id}/rate_limits';
const listParams = z.object({ id: idText('proj') });
const params = z.object({ id: idText('proj'), rate_limit: rateLimitId });

const meansNothing = (reason: string) =>
  z
    .unknown()
    .refine((value) => (value ?? null) === null, `must be null: ${reason}`)
    .optional()
    .openapi({ type: 'null', description: `Only null is accepted: ${reason}` });

const updateSchema = z
  .strictObject({
    ...rateLimitFields,
    max_images_per_1_minute: meansNothing('Headgate serves no image models'),
    max_audio_megabytes_per_1_minute: meansNothing('Headgate serves no audio models'),
    batch_1_day_max_input_tokens: meansNothing('requests of batches count against the limits per minute and per day'),
  })
  .partial()
  .openapi('UpdateProjectRateLimit', { description: 'Absent limits stay as they are; null removes a limit' });

const listQuery = z.strictObject({
  ...cursorListQuery,
  limit: cursorListQuery.limit.prefault('100').openapi({
    type: 'integer',
    minimum: 1,
    maximum: 100,
    default: 100,
    description: 'Items per page',
  }),
  before: z.string().optional().openapi({ description: '`first_id` of the current page: returns the page before it' }),
  order: z.enum(['asc', 'desc']).default('asc').openapi({ description: 'Order by model id' }),
});

export function registerOrganizationRateLimitRoutes(app: ApiApp, parts: OrganizationRateLimitParts): void {
  registerList(app, parts);
  registerUpdate(app, parts);
}

function registerList(app: ApiApp, parts: OrganizationRateLimitParts): void {
  const { guards, rateLimits } = parts;
  const list = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('keys')],
    request: { params: listParams, query: listQuery },
    responses: { 200: jsonAnswer(rateLimitListSchema, 'A page of limits') },
  });
  app.openapi(list, async (context) => {
    const asked = context.req.valid('query');
    const ref = await projectOf(parts, context, context.req.valid('param').id);
    const [models, set] = await Promise.all([modelsOf(parts, ref.organizationId), rateLimits.list(ref)]);
    const all = models.map((model) => toAnswer(model, set.get(model)?.limits ?? noRateLimits));
    const { page, more } = cut(asked.order === 'asc' ? all : all.toReversed(), asked);
    return context.json(toCursorPage(page, more), 200);
  });
}

function registerUpdate(app: ApiApp, parts: OrganizationRateLimitParts): void {
  const { guards, rateLimits } = parts;
  const update = createRoute({
    method: 'post',
    path: `${path}/{rate_limit}`,
    security: bearerSecurity,
    middleware: [guards.may('keys'), guards.smallJsonBody],
    request: { params, query: z.strictObject(organizationQuery), body: jsonRequest(updateSchema) },
    responses: { 200: jsonAnswer(rateLimitSchema, 'The limits') },
  });
  app.openapi(update, async (context) => {
    const { id, rate_limit: named } = context.req.valid('param');
    const ref = await projectOf(parts, context, id);
    const models = await modelsOf(parts, ref.organizationId);
    const model = models.find((one) => idOf(one) === named);
    if (model === undefined) throw noSuchLimit();
    const body = context.req.valid('json');
    const patch = {
      requestsPerMinute: body.max_requests_per_1_minute,
      tokensPerMinute: body.max_tokens_per_1_minute,
      requestsPerDay: body.max_requests_per_1_day,
    };
    return context.json(toAnswer(model, await rateLimits.set({ ...ref, model }, patch, authorOf(context))), 200);
  });
}

const idOf = (model: string): string => `${idPrefix}${model}`;

const noSuchLimit = (): AppError =>
  new AppError('not_found', {
    message: `There is no such rate limit. Use "${idPrefix}" followed by the id of a model that the project may use.`,
  });

/** @throws AppError not_found */
async function projectOf({ guards, accounts }: OrganizationRateLimitParts, context: HttpContext, id: string) {
  const organizationId = await guards.organizationOf(context);
  const projectId = requireId('proj', id);
  if ((await accounts.findProject(organizationId, projectId)) === null) throw notFound('proj');
  return { organizationId, projectId };
}

/** Returns ids of the models that projects of an organization may use, in the catalog's order. */
async function modelsOf({ accounts, catalog }: OrganizationRateLimitParts, organizationId: string) {
  const allowed = (await accounts.readOrganization(organizationId))?.models ?? null;
  const enabled = catalog.list().filter(({ enabled }) => enabled);
  return enabled.filter(({ id }) => allowed === null || allowed.includes(id)).map(({ id }) => id);
}

function toAnswer(model: string, { requestsPerMinute, tokensPerMinute, requestsPerDay }: RateLimits): RateLimitAnswer {
  return {
    object: 'project.rate_limit',
    id: idOf(model),
    model,
    max_requests_per_1_minute: requestsPerMinute,
    max_tokens_per_1_minute: tokensPerMinute,
    max_requests_per_1_day: requestsPerDay,
  };
}

interface Asked {
  readonly limit: number;
  readonly after?: string | undefined;
  readonly before?: string | undefined;
}

/** @throws ValidationError if a cursor is not in the list */
function cut(all: readonly RateLimitAnswer[], { limit, after, before }: Asked) {
  const placeOf = (field: 'after' | 'before', id: string): number => {
    const place = all.findIndex((one) => one.id === id);
    if (place < 0) throw new ValidationError([{ field, message: 'must be the id of a rate limit in this list' }]);
    return place;
  };
  const from = after === undefined ? 0 : placeOf('after', after) + 1;
  const to = before === undefined ? all.length : placeOf('before', before);
  const between = all.slice(from, to);
  const page = before !== undefined && after === undefined ? between.slice(-limit) : between.slice(0, limit);
  return { page, more: between.length > page.length };
}
