import type { MiddlewareHandler } from 'hono';
import { ValidationError } from './failure.ts';
import type { HttpEnv } from './http-context.ts';

const shownMax = 128;

/** Refuses query parameters that a route does not know: one that is mistyped would otherwise be ignored in silence. */
export function knownQuery(names: readonly string[]): MiddlewareHandler<HttpEnv> {
  const known =
    names.length === 0 ? 'this route has no query parameters' : `query parameters of this route: ${names.join(', ')}`;
  return async (context, next) => {
    const given = new URL(context.req.url).searchParams.keys();
    const unknown = [...new Set(given)].filter((name) => !names.includes(name));
    if (unknown.length > 0) {
      const message = `is not known here; ${known}`;
      throw new ValidationError(unknown.map((name) => ({ field: name.slice(0, shownMax), message })));
    }
    await next();
  };
}
