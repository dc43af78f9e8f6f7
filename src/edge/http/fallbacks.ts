import { Hono, type MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { drainBody } from './drain-body.ts';
import type { HttpEnv } from './env.ts';
import { createFailureHandler } from './failure.ts';

/** Gives every request its id, and every answer the header that shows it. */
export const requestId: MiddlewareHandler<HttpEnv> = async (context, next) => {
  // Set by an app around this one.
  const given: string | undefined = context.get('requestId');
  if (given === undefined) {
    const id = uuidv7();
    context.set('requestId', id);
    context.header('x-request-id', id);
  }
  const { incoming, outgoing } = context.env;
  // A request that is refused before its body is read must not keep its connection for as long as it likes.
  if (!incoming.complete) outgoing.once('finish', () => drainBody(incoming));
  await next();
};

/**
 * Stands routes that carry the load before an app that has them too: they are found by a table, and not by a walk
 * through what the routes and middlewares of the others might be. Everything else goes on to the app.
 */
export function routeFirst(app: Hono<HttpEnv>, busy: Hono<HttpEnv>, log: Log): Hono<HttpEnv> {
  const front = new Hono<HttpEnv>();
  const fail = createFailureHandler(log);
  front.route('/', busy);
  front.onError((error, context) => fail(error, context));
  front.notFound((context) => app.fetch(context.req.raw, context.env));
  return front;
}

interface KnownRoute {
  readonly method: string;
  readonly path: string;
  readonly pattern: RegExp;
}

function compile(path: string): RegExp {
  const source = path
    .split('/')
    .map((part) => {
      const wild = /^:[^{]+\{(.+)\}$/.exec(part)?.[1];
      if (wild !== undefined) return wild;
      if (part.startsWith(':')) return '[^/]+';
      return part === '*' ? '.*' : part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
    })
    .join('/');
  return new RegExp(`^${source}$`);
}

/**
 * Answers what no route of an app answers: 405 with `Allow` where the path is known for other methods, else 404; and
 * turns every thrown error into its envelope. To be called on the outermost app; routes may be added before and after.
 */
export function installFallbacks(app: Hono<HttpEnv>, log: Log): void {
  const fail = createFailureHandler(log);
  let known: readonly KnownRoute[] = [];
  // Paths that answer for all methods: what fits them by a parameter or a star is never reached.
  let closed: ReadonlySet<string> = new Set();
  let routeCount = -1;
  const routes = (): readonly KnownRoute[] => {
    if (app.routes.length !== routeCount) {
      routeCount = app.routes.length;
      known = app.routes
        .filter(({ method }) => method !== 'ALL')
        .map(({ method, path }) => ({ method, path, pattern: compile(path) }));
      closed = new Set(app.routes.filter(({ method }) => method === 'ALL').map(({ path }) => path));
    }
    return known;
  };
  app.onError((error, context) => fail(error, context));
  app.notFound((context) => {
    const { path, method } = context.req;
    const fitting = routes().filter((route) => route.pattern.test(path));
    const reached = closed.has(path) ? fitting.filter((route) => route.path === path) : fitting;
    const allowed = new Set(reached.map((route) => route.method));
    if (allowed.size === 0) return fail(new AppError('not_found'), context);
    if (allowed.has('GET')) allowed.add('HEAD');
    const allow = [...allowed].sort().join(', ');
    const message = `${method} is not answered here; allowed: ${allow}.`;
    return fail(new AppError('method_not_allowed', { message, headers: { allow } }), context);
  });
}
