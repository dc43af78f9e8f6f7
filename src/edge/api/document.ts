import { OpenAPIHono, type RouteConfig, z } from '@hono/zod-openapi';
import { type ErrorShape, groupOf, Routes } from '#edge/http/http.ts';
import type { ApiApp } from './app.ts';
import { errorDescription, jsonAnswer } from './schemas.ts';

const info = {
  title: 'Headgate',
  version: '1',
  description:
    'An OpenAI-compatible gateway. Times are Unix seconds and money is a decimal string in USD, but for users, ' +
    "projects and the platform, which answer in the generic API's shape.",
};

const openaiError = z
  .object({
    error: z.object({
      message: z.string(),
      type: z.string(),
      code: z.string(),
      param: z.string().nullable(),
    }),
  })
  .openapi('Error');

const anthropicError = z
  .object({
    type: z.literal('error'),
    error: z.object({
      type: z.string(),
      message: z.string(),
      code: z.string(),
      param: z.string().nullable(),
    }),
  })
  .openapi('AnthropicError');

const genericError = z
  .object({
    error: z.object({
      code: z.string().openapi({ example: 'VALIDATION_ERROR' }),
      message: z.string(),
      details: z.array(z.object({ field: z.string(), message: z.string() })),
    }),
  })
  .openapi('GenericError');

const errorAnswers: Readonly<Record<ErrorShape, ReturnType<typeof jsonAnswer>>> = {
  openai: jsonAnswer(openaiError, errorDescription),
  anthropic: jsonAnswer(anthropicError, errorDescription),
  generic: jsonAnswer(genericError, errorDescription),
};

/** A route with the error answer of its group; what it says of that answer itself, such as headers, stays. */
function withErrors(route: RouteConfig): RouteConfig {
  const answer = errorAnswers[groupOf(route.path).errorShape];
  return { ...route, responses: { ...route.responses, default: { ...answer, ...route.responses['default'] } } };
}

/** The OpenAPI document of what the routes of an app declare. */
export function describeRoutes(app: ApiApp): object {
  const complete = new OpenAPIHono();
  for (const definition of app.openAPIRegistry.definitions) {
    if (definition.type === 'route') complete.openAPIRegistry.registerPath(withErrors(definition.route));
    if (definition.type === 'component') {
      complete.openAPIRegistry.registerComponent(definition.componentType, definition.name, definition.component);
    }
  }
  return complete.getOpenAPI31Document({ openapi: '3.1.0', info });
}

/** @throws for a route that belongs into the document and is not there: it was not made with `createRoute` */
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
