import { HTTPException } from 'hono/http-exception';
import type { ContentfulStatusCode } from 'hono/utils/http-status';
import { type Change, CommitUnknownError, isDatabaseUnavailable } from '#base/database/database.ts';
import { anthropicEnvelope, AppError, type ErrorCode, errorEnvelope } from '#base/errors.ts';
import type { Log } from '#base/log.ts';
import { TooManyWaitError } from '#base/queues/queues.ts';
import type { HttpContext } from './http-context.ts';
import { type ErrorShape, errorShapeOf } from './routes.ts';

/** One thing that is wrong with a request; `field` is a dotted path, or "body". */
export interface Problem {
  readonly field: string;
  readonly message: string;
}

/** Most problems that the message lists. */
const problemsShownMax = 5;

/**
 * Reports that a request does not match its schema. The OpenAI envelope names the first field, the generic one lists
 * all.
 */
export class ValidationError extends AppError {
  readonly problems: readonly Problem[];

  constructor(problems: readonly Problem[], code: ErrorCode = 'invalid_request_error') {
    const shown = problems.slice(0, problemsShownMax).map(({ field, message }) => `${field}: ${message}`);
    const param = problems[0]?.field;
    super(code, { message: shown.join('; '), ...(param !== undefined && { param }) });
    this.name = 'ValidationError';
    this.problems = problems;
  }
}

/** Reports that a body is not JSON at all, for which the generic API has its own code. */
export class InvalidJsonError extends ValidationError {
  constructor(message: string) {
    super([{ field: 'body', message }]);
    this.name = 'InvalidJsonError';
  }
}

/** Maps any thrown value to the error that clients see. Texts of unknown errors stay inside, as the cause. */
export function toAppError(error: unknown): AppError {
  if (error instanceof AppError) return error;
  if (error instanceof HTTPException && error.status === 415) return new AppError('unsupported_media_type');
  if (error instanceof HTTPException && error.status < 500)
    return new AppError('invalid_request_error', { cause: error });
  if (error instanceof TooManyWaitError) {
    const message =
      'Too many requests of this API key or from this address are already waiting for the gateway. Wait until some end.';
    return new AppError('concurrency_limit_exceeded', {
      message,
      headers: { 'retry-after': '1' },
      reason: 'waiting_requests',
    });
  }
  if (error instanceof CommitUnknownError) return new AppError('outcome_unknown', { cause: error });
  if (isDatabaseUnavailable(error)) return new AppError('database_unavailable', { cause: error });
  return new AppError('internal_error', { cause: error });
}

/** Codes of the generic API that are more specific than their status. */
const genericCodesOfTheirOwn: Readonly<Partial<Record<ErrorCode, string>>> = {
  package_too_large: 'PACKAGE_TOO_LARGE',
  package_invalid: 'PACKAGE_INVALID',
  queue_full: 'QUEUE_FULL',
  outcome_unknown: 'OUTCOME_UNKNOWN',
  runner_unavailable: 'RUNNER_UNAVAILABLE',
  secrets_unavailable: 'SECRETS_UNAVAILABLE',
};

const genericCodes: Readonly<Record<number, string>> = {
  400: 'VALIDATION_ERROR',
  401: 'UNAUTHORIZED',
  403: 'FORBIDDEN',
  404: 'NOT_FOUND',
  405: 'METHOD_NOT_ALLOWED',
  409: 'CONFLICT',
  413: 'PAYLOAD_TOO_LARGE',
  415: 'UNSUPPORTED_MEDIA_TYPE',
  422: 'UNPROCESSABLE',
  429: 'RATE_LIMITED',
  503: 'UNAVAILABLE',
};

/** Returns the body of an error in the shape of the generic API. */
export function genericEnvelope(error: AppError): {
  error: { code: string; message: string; details: readonly Problem[] };
} {
  const own = error instanceof InvalidJsonError ? 'INVALID_JSON' : genericCodesOfTheirOwn[error.code];
  const code = own ?? genericCodes[error.status] ?? 'INTERNAL';
  return { error: { code, message: error.message, details: problemsOf(error) } };
}

function problemsOf(error: AppError): readonly Problem[] {
  if (error instanceof ValidationError) return error.problems;
  return error.param === null ? [] : [{ field: error.param, message: error.message }];
}

/** Functions that return the body of an error, by the error shape of a group of paths. */
const envelopes: Readonly<Record<ErrorShape, (error: AppError) => object>> = {
  openai: errorEnvelope,
  anthropic: anthropicEnvelope,
  generic: genericEnvelope,
};

/** Creates the handler that turns all errors into answers. Faults of the gateway are logged with the request's id. */
export function createFailureHandler(log: Log): (error: unknown, context: HttpContext) => Response {
  return (error, context) => {
    const failure = inRequest(toAppError(error), context);
    context.set('failureCode', failure.code);
    context.set('failureParam', failure.param);
    context.set('failureReason', failure.reason);
    // 501 means that something is not built yet, which is not a fault.
    if (failure.status >= 500 && failure.code !== 'not_implemented') {
      const fields = { requestId: context.get('requestId'), method: context.req.method, code: failure.code };
      log.error({ ...fields, err: failure.cause ?? failure }, 'a request failed with a 5xx status (see err)');
    }
    for (const [name, value] of Object.entries(failure.headers)) context.header(name, value);
    return context.json(envelopes[errorShapeOf(context)](failure), statusOf(failure));
  };
}

/** Removes from a context what the failure of its request has set, so that another answer can replace the failure. */
export function dropFailure(context: HttpContext): void {
  if (context.error === undefined) return;
  for (const name of Object.keys(toAppError(context.error).headers)) context.header(name, undefined);
  context.error = undefined;
  context.set('failureCode', undefined);
  context.set('failureParam', undefined);
  context.set('failureReason', undefined);
}

/**
 * Returns the error to show for this request. A failure after a commit does not mean that all of the request failed.
 * SDKs retry a 503, which would create a duplicate, unless an Idempotency-Key keeps a receipt.
 */
function inRequest(failure: AppError, context: HttpContext): AppError {
  const change = context.get('change') as Change | undefined;
  const isHalfDone = failure.code === 'database_unavailable' && change?.isCommitted === true;
  if (!isHalfDone && failure.code !== 'outcome_unknown') return failure;
  const lasting = context.req.method === 'POST' && (context.get('created') as unknown) === undefined;
  return new AppError('outcome_unknown', { lasting, cause: failure.cause });
}

/** Narrows the status for Hono's types: every status of the error table allows a body. */
function statusOf(error: AppError): ContentfulStatusCode {
  return error.status as ContentfulStatusCode;
}
