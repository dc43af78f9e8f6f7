import { OpenAPIHono, type RouteConfig, z } from '@hono/zod-openapi';
import { type HttpEnv, knownQuery, type Problem, ValidationError } from '#edge/http/http.ts';

/**
 * The app that the resources' files add their routes to. How a route is made, in this order:
 *
 * 1. `createRoute({ method, path, middleware, request, responses, security })` inside the file's own
 *    `register…Routes(app, { guards, … })`, which takes what it needs and nothing else. Its texts and examples are in
 *    `operations/`, by method and path.
 * 2. `middleware` names the guard first (`guards.may('keys')`, by the table of roles; none for a public route), then
 *    `guards.jsonBody` where there is a body. Both refuse before any schema is looked at.
 * 3. Schemas are strict (`z.strictObject`): an unknown field is a 400 that names it. Query parameters that the schema
 *    does not have are refused here, for routes without one too.
 * 4. The handler reads `context.req.valid('json' | 'query' | 'param')`, `context.get('caller')` and
 *    `guards.organizationOf(context)`, makes changes as `authorOf(context)`, throws AppError for refusals and answers
 *    `context.json(body, status)`. It is tried with every kind of key in `test/edge/api/roles.test.ts`.
 */
export type ApiApp = OpenAPIHono<HttpEnv>;

export function createApiApp(): ApiApp {
  const app = new OpenAPIHono<HttpEnv>({
    defaultHook: (result) => {
      if (!result.success) throw new ValidationError(toProblems(result.error));
    },
  });
  const { openapi } = app;
  app.openapi = (route, ...handlers) => openapi(withKnownQuery(route), ...handlers);
  return app;
}

/** The route, refusing query parameters that it does not declare. */
function withKnownQuery<R extends RouteConfig>(route: R): R {
  const query = route.request?.query;
  const schema = query instanceof z.ZodObject ? query : z.object({});
  const problemsOf = (given: object): Problem[] => toProblems(schema.safeParse(given).error ?? new z.ZodError([]));
  const middleware = [route.middleware ?? [], knownQuery(Object.keys(schema.shape), problemsOf)].flat();
  return { ...route, middleware };
}

/** What zod found, as fields and sentences; an unknown field is named by itself. */
export function toProblems(error: z.ZodError): Problem[] {
  const problems = error.issues.flatMap((issue): Problem[] => {
    if (issue.code === 'unrecognized_keys') {
      return issue.keys.map((key) => ({ field: [...issue.path, key].join('.'), message: 'is not known here' }));
    }
    return [{ field: issue.path.length === 0 ? 'body' : issue.path.join('.'), message: sentence(issue) }];
  });
  // A number past what is exact breaks its type's bound and its field's, which may be the same.
  const different = new Map(problems.map((problem) => [`${problem.field}\n${problem.message}`, problem]));
  return [...different.values()];
}

type Issue = z.core.$ZodIssue;

const article = (type: string): string => `${/^[aeio]/.test(type) ? 'an' : 'a'} ${type}`;

/** Zod's own texts begin with "Invalid input: expected …"; ours go on after the field's name. */
function sentence(issue: Issue): string {
  if (issue.code === 'invalid_type') {
    if (issue.input === undefined && issue.message.endsWith('received undefined')) return 'is missing';
    return `must be ${article(issue.expected === 'int' ? 'integer' : issue.expected)}`;
  }
  if (issue.code === 'invalid_value') return `must be one of ${issue.values.map(String).join(', ')}`;
  if (issue.code === 'too_big' && issue.message.startsWith('Too big')) {
    return issue.origin === 'string'
      ? `must have at most ${issue.maximum} characters`
      : `must be at most ${issue.maximum}`;
  }
  return issue.message;
}
