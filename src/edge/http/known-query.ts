import type { MiddlewareHandler } from 'hono';
import { type Problem, ValidationError } from './failure.ts';
import type { HttpEnv } from './http-context.ts';

const shownMax = 128;

/**
 * Refuses query parameters that a route does not know: one that is mistyped would otherwise be ignored in silence.
 * @param problemsOf what else is wrong with those that it does know, so that all of it is told at once
 */
export function knownQuery(
  names: readonly string[],
  problemsOf: (query: Readonly<Record<string, string>>) => readonly Problem[] = () => [],
): MiddlewareHandler<HttpEnv> {
  const known =
    names.length === 0 ? 'this route has no query parameters' : `query parameters of this route: ${names.join(', ')}`;
  return async (context, next) => {
    const given = new URL(context.req.url).searchParams;
    const unknown = [...new Set(given.keys())].filter((name) => !names.includes(name));
    if (unknown.length > 0) {
      const message = `is not known here; ${known}`;
      const problems = unknown.map((name) => ({ field: name.slice(0, shownMax), message }));
      const others = Object.fromEntries([...given].filter(([name]) => names.includes(name)));
      throw new ValidationError([...problems, ...problemsOf(others)]);
    }
    await next();
  };
}
