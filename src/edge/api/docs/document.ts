import { OpenAPIHono, type RouteConfig } from '@hono/zod-openapi';
import { type Operation, operations, tags } from '#edge/api/operations/operations.ts';
import { type ApiApp, errorDescription, jsonAnswer } from '#edge/api/shared/shared.ts';
import { anthropicErrorSchema, genericErrorSchema, openaiErrorSchema } from '#edge/contract/errors.ts';
import { type ErrorShape, groupOf, Routes } from '#edge/http/http.ts';

const info = {
  title: 'Headgate',
  version: '1',
  description:
    'An OpenAI-compatible gateway. Money is a decimal string, in USD except for billing. Times are Unix seconds. For ' +
    'users, projects, clusters, stacks, runs and billing, times are ISO 8601 and errors have `details`.',
};

/** Server of the API: the gateway that serves the document. */
const servers = [{ url: '/' }];

const errorAnswers: Readonly<Record<ErrorShape, ReturnType<typeof jsonAnswer>>> = {
  openai: jsonAnswer(openaiErrorSchema, errorDescription),
  anthropic: jsonAnswer(anthropicErrorSchema, errorDescription),
  generic: jsonAnswer(genericErrorSchema, errorDescription),
};

type Answers = RouteConfig['responses'];

/** Returns a route's answers with the error answer of its group; a default answer that the route declares is merged. */
function withError({ path, responses }: RouteConfig): Answers {
  const answer = errorAnswers[groupOf(path).errorShape];
  return { ...responses, default: { ...answer, ...responses['default'] } };
}

/** Returns a body with an example for its first content type. */
function withExample<T extends object>(body: T, example: unknown): T {
  const { content = {} } = body as { readonly content?: Readonly<Record<string, object>> };
  const [first, ...others] = Object.entries(content);
  if (first === undefined) throw new Error('an example needs a body');
  const [type, media] = first;
  return { ...body, content: { [type]: { ...media, example }, ...Object.fromEntries(others) } };
}

function withAnswerExamples(answers: Answers, { answer, error }: Operation): Answers {
  const examples = {
    [Object.keys(answers).find((status) => status !== 'default') ?? 'default']: answer,
    default: error,
  };
  const entries = Object.entries(answers).map(([status, one]) => {
    const example = examples[status];
    return [status, example === undefined ? one : withExample(one, example)];
  });
  return Object.fromEntries(entries) as Answers;
}

/** Returns a route with its texts, examples and the error answer of its group. @throws for a route without texts */
function describe(route: RouteConfig): RouteConfig {
  const name = `${route.method.toUpperCase()} ${route.path}`;
  const operation = operations.get(name);
  if (operation === undefined) throw new Error(`the route ${name} has no texts for the OpenAPI document`);
  const { operationId, summary, description, tag, request } = operation;
  // An empty list means that no key is needed.
  const texts = { operationId, summary, description, tags: [tag], security: route.security ?? [] };
  const responses = withAnswerExamples(withError(route), operation);
  const { body } = route.request ?? {};
  if (request === undefined || body === undefined) return { ...route, ...texts, responses };
  return { ...route, ...texts, responses, request: { ...route.request, body: withExample(body, request) } };
}

/** Returns the OpenAPI document of the routes that an app declares. */
export function describeRoutes(app: ApiApp): object {
  const complete = new OpenAPIHono();
  for (const definition of app.openAPIRegistry.definitions) {
    if (definition.type === 'route') complete.openAPIRegistry.registerPath(describe(definition.route));
    if (definition.type === 'component') {
      complete.openAPIRegistry.registerComponent(definition.componentType, definition.name, definition.component);
    }
  }
  return complete.getOpenAPI31Document({ openapi: '3.1.0', info, servers, tags });
}

/** @throws for a documented route without an entry in the document: the route was not made with `createRoute` */
export function requireDocumented(app: ApiApp): void {
  const documented = new Set(
    app.openAPIRegistry.definitions.flatMap((definition) =>
      definition.type === 'route' ? [`${definition.route.method.toUpperCase()} ${definition.route.path}`] : [],
    ),
  );
  for (const { method, path, group } of new Routes(app).list()) {
    const name = `${method} ${path.replaceAll(/:([^/{]+)(?:\{[^/]+\})?/g, '{$1}')}`;
    if (group.documented && !documented.has(name)) throw new Error(`the route ${name} is not in the OpenAPI document`);
  }
}
