import type { Hono } from 'hono';
import type { HttpContext, HttpEnv } from './http-context.ts';

/**
 * `openai`: {error: {message, type, code, param}}; `anthropic`: {type: 'error', error: {type, message, code, param}};
 * `generic`: {error: {code, message, details}}.
 */
export type ErrorShape = 'openai' | 'anthropic' | 'generic';

/** Settings of all paths below a prefix, including paths without a route. */
export interface RouteGroup {
  /** The group has this path and all paths below. `*` matches any one segment. */
  readonly prefix: string;
  readonly errorShape: ErrorShape;
  /** True if requests count against the hourly limit of their user, or of their address. */
  readonly hourlyLimit: boolean;
  /** True if the routes are in the OpenAPI document. */
  readonly documented: boolean;
}

const generic = { errorShape: 'generic', hourlyLimit: true, documented: true } as const;
/** Settings of the platform's routes: the generic API's shapes without its hourly limit. */
const platform = { ...generic, hourlyLimit: false } as const;
const openai = { errorShape: 'openai', hourlyLimit: false } as const;

/** Group of the remaining paths: health, the OpenAPI document and its page. */
const remaining: RouteGroup = { prefix: '', ...openai, documented: false };

/**
 * All groups; a path belongs to the first group that matches. `test/edge/api/docs.test.ts` compares the groups with the
 * routes: all routes of one tag have one error shape.
 */
export const routeGroups: readonly RouteGroup[] = [
  { prefix: '/api/v1', ...generic },
  // OpenAI puts the roles of a project beside its organization API; these paths have the limit of the paths around
  // them.
  { prefix: '/v1/projects/*/groups', ...openai, documented: true },
  { prefix: '/v1/projects/*/roles', ...openai, documented: true },
  { prefix: '/v1/projects/*/users', ...openai, documented: true },
  { prefix: '/v1/projects', ...generic },
  { prefix: '/v1/users', ...generic },
  { prefix: '/v1/billing', ...platform },
  { prefix: '/v1/clusters', ...platform },
  { prefix: '/v1/orgs', ...platform },
  { prefix: '/v1/runner', ...platform },
  { prefix: '/v1/runs', ...platform },
  { prefix: '/v1/stacks', ...platform },
  { prefix: '/v1/messages', errorShape: 'anthropic', hourlyLimit: false, documented: true },
  { prefix: '/v1', ...openai, documented: true },
  remaining,
];

/** @param path of a request, or of a route in any notation */
export function groupOf(path: string): RouteGroup {
  return patterns.find(({ pattern }) => pattern.test(path))?.group ?? remaining;
}

const modelsPattern = /^\/v1\/models(?:\/|$)/;

/** Checks whether a request is for the list of models, from a client of Anthropic's API: those send its version. */
export function isAnthropicList({ req }: HttpContext): boolean {
  return req.header('anthropic-version') !== undefined && modelsPattern.test(req.path);
}

/** Returns the error shape of a request. */
export function errorShapeOf(context: HttpContext): ErrorShape {
  return isAnthropicList(context) ? 'anthropic' : groupOf(context.req.path).errorShape;
}

const patterns = routeGroups.map((group) => {
  return { group, pattern: new RegExp(`^${group.prefix.replaceAll('*', '[^/]+')}(?:/|$)`) };
});

export interface Route {
  readonly method: string;
  /** In Hono's notation: `/v1/keys/:id`. */
  readonly path: string;
  readonly group: RouteGroup;
}

/** Hono's name for middlewares, and for handlers of every method. */
const everyMethod = 'ALL';

/** Lists the routes of an app, and the methods at a path, by the router that dispatches requests. */
export class Routes {
  readonly #app: Hono<HttpEnv>;

  constructor(app: Hono<HttpEnv>) {
    this.#app = app;
  }

  list(): readonly Route[] {
    return this.#app.routes
      .filter(({ method }) => method !== everyMethod)
      .map(({ method, path }) => ({ method, path, group: groupOf(path) }));
  }

  /** Returns the methods that are answered at a path, in alphabetical order; empty if there is no route. */
  methodsAt(path: string): readonly string[] {
    const known = new Set(this.#app.routes.map(({ method }) => method));
    const found = [...known].flatMap((method) => this.#app.router.match(method, path)[0].map(([[, route]]) => route));
    // A handler of every method at exactly this path hides routes that match the path by a parameter.
    const isClosed = found.some((route) => route.method === everyMethod && route.path === path);
    const reached = isClosed ? found.filter((route) => route.path === path) : found;
    const methods = new Set(reached.map(({ method }) => method).filter((method) => method !== everyMethod));
    if (methods.has('GET')) methods.add('HEAD');
    return [...methods].toSorted();
  }
}
