import type { HonoRequest, MiddlewareHandler } from 'hono';
import { type Problem, ValidationError } from './failure.ts';
import type { HttpEnv } from './http-context.ts';

const shownMax = 128;

/** The one parameter that names an organization, and its former name, which every route with the parameter accepts. */
const [organization, alias] = ['organization_id', 'org'];

/**
 * Replaces the alias in the query of a request, so that schemas and handlers know one name.
 * @throws ValidationError if both names are given with different values
 */
function useOneName(request: HonoRequest): void {
  const url = new URL(request.url);
  const given = url.searchParams;
  const values = new Set([...given.getAll(alias), ...given.getAll(organization)]);
  if (!given.has(alias)) return;
  if (values.size > 1) {
    const message = `must be the same as ${organization}, of which it is an alias. Send one of them`;
    throw new ValidationError([{ field: alias, message }]);
  }
  given.delete(alias);
  given.set(organization, [...values].join(''));
  request.raw = new Request(url, request.raw);
}

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
    if (names.includes(organization)) useOneName(context.req);
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
