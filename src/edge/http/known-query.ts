import type { MiddlewareHandler } from 'hono';
import { type Problem, ValidationError } from './failure.ts';
import type { HttpEnv } from './http-context.ts';

const shownMax = 128;

/**
 * Rejects query parameters that a route does not know: a mistyped parameter would otherwise be ignored silently.
 * @param problemsOf returns other problems of the known parameters, so that one answer reports all problems
 */
export function knownQuery(
  names: readonly string[],
  problemsOf: (query: Readonly<Record<string, string>>) => readonly Problem[] = () => [],
): MiddlewareHandler<HttpEnv> {
  const known =
    names.length === 0 ? 'this endpoint has no query parameters' : `allowed query parameters: ${names.join(', ')}`;
  return async (context, next) => {
    const given = new URL(context.req.url).searchParams;
    const unknown = [...new Set(given.keys())].filter((name) => !names.includes(name));
    if (unknown.length > 0) {
      const message = `is unknown; ${known}`;
      const problems = unknown.map((name) => ({ field: name.slice(0, shownMax), message }));
      const others = Object.fromEntries([...given].filter(([name]) => names.includes(name)));
      throw new ValidationError([...problems, ...problemsOf(others)]);
    }
    await next();
  };
}
