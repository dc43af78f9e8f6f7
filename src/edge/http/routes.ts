import type { Hono } from 'hono';
import type { HttpEnv } from './http-context.ts';

/**
 * `openai`: {error: {message, type, code, param}}; `anthropic`: {type: 'error', error: {type, message, code, param}};
 * `generic`: {error: {code, message, details}}.
 */
export type ErrorShape = 'openai' | 'anthropic' | 'generic';

/** What is the same for all paths below one, those that no route answers too. */
export interface RouteGroup {
  /** The group has this path and all below it; `*` is one segment of it, whatever it says. */
  readonly prefix: string;
  readonly errorShape: ErrorShape;
  /** Requests count against the hour of their key, or of their address. */
  readonly hourlyLimit: boolean;
  /** Its routes stand in the OpenAPI document. */
  readonly documented: boolean;
}

const generic = { errorShape: 'generic', hourlyLimit: true, documented: true } as const;
/** The platform's: the generic API's shapes without its hour. */
const platform = { ...generic, hourlyLimit: false } as const;
const openai = { errorShape: 'openai', hourlyLimit: false } as const;

/** What is in none of the others: health, the document and its page. */
const remaining: RouteGroup = { prefix: '', ...openai, documented: false };

/**
 * All groups; a path belongs to the first one that has it. `test/edge/api/docs.test.ts` holds them against the routes:
 * all routes of one tag have one error shape.
 */
export const routeGroups: readonly RouteGroup[] = [
  { prefix: '/api/v1', ...generic },
  // OpenAI has the roles of a project beside its organization API; the hour is that of the paths around them.
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

/** @param path of a request, or of a route in whatever notation */
export function groupOf(path: string): RouteGroup {
  return patterns.find(({ pattern }) => pattern.test(path))?.group ?? remaining;
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

/** What stands before routes is kept under this name of a method, and so is what answers to every method. */
const everyMethod = 'ALL';

/** The routes of an app, and which of them answer at a path: asked of the router that requests are dispatched by. */
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

  /** Methods that are answered at a path, in the order of their names; empty where no route is. */
  methodsAt(path: string): readonly string[] {
    const known = new Set(this.#app.routes.map(({ method }) => method));
    const found = [...known].flatMap((method) => this.#app.router.match(method, path)[0].map(([[, route]]) => route));
    // What answers to every method at exactly this path keeps requests from routes that have it by a parameter.
    const isClosed = found.some((route) => route.method === everyMethod && route.path === path);
    const reached = isClosed ? found.filter((route) => route.path === path) : found;
    const methods = new Set(reached.map(({ method }) => method).filter((method) => method !== everyMethod));
    if (methods.has('GET')) methods.add('HEAD');
    return [...methods].toSorted();
  }
}
