import { OpenAPIHono, type RouteConfig, z } from '@hono/zod-openapi';
import { type HttpEnv, knownQuery, type Problem, ValidationError } from '#edge/http/http.ts';

/**
 * The app to which the files of the resources add their routes. A route is built in these steps:
 *
 * 1. `createRoute({ method, path, middleware, request, responses, security })` inside the file's own
 *    `register…Routes(app, { guards, … })`, which takes only the parts that the routes need. Texts and examples of the
 *    route are in `operations/`, by method and path.
 * 2. `middleware` names the guard first (`guards.may('keys')`, by the table of roles; none for a public route), then
 *    `guards.jsonBody` if there is a body. Both reject a request before any schema checks it.
 * 3. Schemas of answers are in `edge/contract`. Schemas of bodies are strict (`z.strictObject`): an unknown field returns
 *    400 with the field's name. This app rejects query parameters that the schema does not have, also for routes
 *    without a query schema.
 * 4. The handler reads `context.req.valid('json' | 'query' | 'param')`, `context.get('caller')` and
 *    `guards.organizationOf(context)`, makes changes as `authorOf(context)`, throws AppError to reject a request, and
 *    returns `context.json(body, status)`. `test/edge/api/roles.test.ts` calls each route with every kind of key.
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

/** Returns the route with a middleware that rejects undeclared query parameters. */
function withKnownQuery<R extends RouteConfig>(route: R): R {
  const query = route.request?.query;
  const schema = query instanceof z.ZodObject ? query : z.object({});
  const problemsOf = (given: object): Problem[] => toProblems(schema.safeParse(given).error ?? new z.ZodError([]));
  const middleware = [route.middleware ?? [], knownQuery(Object.keys(schema.shape), problemsOf)].flat();
  return { ...route, middleware };
}

/** Converts zod's issues to fields and sentences; each unknown field is a problem of its own. */
export function toProblems(error: z.ZodError): Problem[] {
  const problems = error.issues.flatMap((issue): Problem[] => {
    if (issue.code === 'unrecognized_keys') {
      return issue.keys.map((key) => ({ field: [...issue.path, key].join('.'), message: 'is not a known field' }));
    }
    return [{ field: issue.path.length === 0 ? 'body' : issue.path.join('.'), message: sentence(issue) }];
  });
  // A number beyond the safe integers violates the bounds of its type and of its field, whose messages may be equal.
  const different = new Map(problems.map((problem) => [`${problem.field}\n${problem.message}`, problem]));
  return [...different.values()];
}

type Issue = z.core.$ZodIssue;

const article = (type: string): string => `${/^[aeio]/.test(type) ? 'an' : 'a'} ${type}`;

/** Rewrites zod's own texts, which begin with "Invalid input: expected …", so that they can follow a field's name. */
function sentence(issue: Issue): string {
  if (issue.code === 'invalid_type') {
    if (issue.input === undefined && issue.message.endsWith('received undefined')) return 'is missing';
    return `must be ${article(issue.expected === 'int' ? 'integer' : issue.expected)}`;
  }
  // The rule of the keys says more than "Invalid key in record".
  const [ofKey] = issue.code === 'invalid_key' ? issue.issues : [];
  if (ofKey !== undefined) return sentence(ofKey);
  if (issue.code === 'invalid_value') return `must be one of ${issue.values.map(String).join(', ')}`;
  if (issue.code === 'too_big' && issue.message.startsWith('Too big')) {
    return issue.origin === 'string'
      ? `must have at most ${issue.maximum} characters`
      : `must be at most ${issue.maximum}`;
  }
  return issue.message;
}
