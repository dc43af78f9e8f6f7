import type { Hono, MiddlewareHandler } from 'hono';
import { AppError } from '#base/errors.ts';
import { uuidv7 } from '#base/id.ts';
import type { Log } from '#base/log.ts';
import { drainBody } from './drain-body.ts';
import type { HttpEnv } from './http-context.ts';
import { createFailureHandler } from './failure.ts';
import { Routes } from './routes.ts';

/** Gives every request its id, and every answer the header that shows it. */
export const requestId: MiddlewareHandler<HttpEnv> = async (context, next) => {
  // An app around this one may have given it an id already.
  const given: string | undefined = context.get('requestId');
  if (given === undefined) {
    const id = uuidv7();
    context.set('requestId', id);
    context.header('x-request-id', id);
  }
  const { incoming, outgoing } = context.env;
  // Without this bound, a request that is rejected before its body is read could keep its connection indefinitely.
  if (!incoming.complete) outgoing.once('finish', () => drainBody(incoming));
  await next();
};

/**
 * Answers requests that no route of an app answers: 405 with `Allow` if the path is known for other methods, otherwise
 * 404. Turns every thrown error into its envelope. Call this on the outermost app; routes may be added before and
 * after.
 * @param absentOf returns the error for a path that is known and not served; null for other paths
 */
export function installFallbacks(
  app: Hono<HttpEnv>,
  log: Log,
  absentOf: (path: string) => AppError | null = () => null,
): void {
  const fail = createFailureHandler(log);
  const routes = new Routes(app);
  app.onError((error, context) => fail(error, context));
  app.notFound((context) => {
    const { path, method } = context.req;
    // "/v1/responses/compact" also has the form of a stored response's path.
    const other = instead.find((one) => one.path.test(path));
    if (other !== undefined) return fail(new AppError(other.code, { message: other.message }), context);
    const absent = absentOf(path);
    const methods = routes.methodsAt(path);
    if (methods.length === 0) return fail(absent ?? nothingAt(path, routes), context);
    const allow = methods.join(', ');
    const why = absent === null ? '' : ` ${absent.message}`;
    const message = `Method ${method} is not allowed here. Use ${allow}.${why}`;
    return fail(new AppError('method_not_allowed', { message, headers: { allow } }), context);
  });
}

interface Instead {
  readonly path: RegExp;
  readonly code: 'not_found' | 'not_implemented';
  readonly message: string;
}

/** Alternatives to paths that OpenAI or Anthropic serve and this gateway does not. The first match applies. */
const instead: readonly Instead[] = [
  {
    path: /^\/v1\/responses\/compact\/?$/,
    code: 'not_implemented',
    message:
      'Compacting a conversation is not supported. Send the shortened conversation in "input" of the next request.',
  },
  {
    path: /^\/v1\/messages\/batches(?:\/|$)/,
    code: 'not_found',
    message: "Anthropic's batches are not supported. Use POST /v1/batches, in OpenAI's format.",
  },
  {
    path: /^\/v1\/conversations(?:\/|$)/,
    code: 'not_implemented',
    message:
      'Conversation objects are not supported. Continue a response with "previous_response_id", or send the ' +
      'conversation in "input".',
  },
];

/**
 * Matches a path that repeats a known end, because the client's base URL is too long: `/v1` that the client adds
 * itself, or a whole route.
 */
const knownEnd = /^\/.+?(\/(?:chat\/completions|completions|responses|embeddings|messages|models))$/;

/** Returns the 404 of a path, with a hint for common mistakes: a base URL without `/v1`, or a slash after each path. */
function nothingAt(asked: string, routes: Routes): AppError {
  const path = asked.replace(/(?<=.)\/+$/, '');
  if (path !== asked && routes.methodsAt(path).length > 0) {
    return new AppError('not_found', {
      message: `Path not found. Use ${path}, without the final slash.`,
    });
  }
  const [, end] = knownEnd.exec(path) ?? [];
  if (end !== undefined && routes.methodsAt(`/v1${path}`).length === 0) {
    return new AppError('not_found', { message: `Path not found. Use /v1${end} for ${end}.` });
  }
  if (path.startsWith('/v1/') || routes.methodsAt(`/v1${path}`).length === 0) return new AppError('not_found');
  return new AppError('not_found', {
    message: 'Path not found. The base URL of this API ends with /v1.',
  });
}
