/**
 * The only table of error codes. The text of a code is public: it must reveal nothing of an engine, a store or the
 * machine. A text that replaces it must not, either.
 */
interface ErrorEntry {
  readonly status: number;
  readonly type: ErrorType;
  readonly text: string;
}

export type ErrorType =
  | 'auth_error'
  | 'billing_error'
  | 'invalid_request_error'
  | 'not_implemented'
  | 'rate_limit_error'
  | 'server_error'
  | 'upstream_error';

const entry = (status: number, type: ErrorType, text: string): ErrorEntry => ({ status, type, text });
const invalid = (status: number, text: string): ErrorEntry => entry(status, 'invalid_request_error', text);

const errorTable = {
  unauthorized: entry(
    401,
    'auth_error',
    'The API key is missing or invalid. Send it as "Authorization: Bearer <key>".',
  ),
  organization_suspended: entry(403, 'auth_error', 'This organization is suspended. Contact the operator.'),
  insufficient_scope: entry(403, 'auth_error', 'This route requires an API key with the scope "management".'),
  invalid_request_error: invalid(400, 'The request is invalid.'),
  invalid_value: invalid(400, 'A field of the request has an invalid value.'),
  unsupported_parameter: invalid(400, 'A field of the request is not supported.'),
  context_length_exceeded: invalid(400, 'The request is longer than the context of this model.'),
  model_not_found: invalid(400, 'This model does not exist.'),
  previous_response_not_found: invalid(400, 'The previous response is not stored.'),
  not_found: invalid(404, 'Nothing exists at this path.'),
  method_not_allowed: invalid(405, 'Method not allowed.'),
  request_timeout: invalid(408, 'The request was not received completely in time.'),
  key_limit_reached: invalid(409, 'The organization has reached its limit of active keys. Revoke a key first.'),
  conflict: invalid(409, 'The request conflicts with the current state.'),
  request_too_large: invalid(413, 'The request body is too large.'),
  package_too_large: invalid(413, 'The package is too large.'),
  unsupported_media_type: invalid(415, 'Send the body as application/json.'),
  unprocessable: invalid(422, 'An earlier request used the same reference with different values.'),
  package_invalid: invalid(422, 'The package is invalid.'),
  insufficient_funds: entry(402, 'billing_error', 'The balance is too low for this request.'),
  budget_exceeded: entry(402, 'billing_error', 'This request exceeds a budget.'),
  rate_limit_exceeded: entry(
    429,
    'rate_limit_error',
    'This key has reached its limit of requests per minute. Try again later.',
  ),
  tokens_limit_exceeded: entry(
    429,
    'rate_limit_error',
    'This key has reached its limit of tokens per minute. Try again later.',
  ),
  monthly_quota_exceeded: entry(429, 'rate_limit_error', 'This key has reached its limit of tokens per month.'),
  concurrency_limit_exceeded: entry(
    429,
    'rate_limit_error',
    'This key has reached its limit of running requests. Wait until one finishes.',
  ),
  internal_error: entry(500, 'server_error', 'An internal error occurred.'),
  not_implemented: entry(501, 'not_implemented', 'This feature is not implemented.'),
  upstream_error: entry(502, 'upstream_error', 'The model could not answer this request.'),
  database_unavailable: entry(503, 'server_error', 'The database is unreachable. Try again.'),
  outcome_unknown: entry(
    503,
    'server_error',
    'The outcome is unknown: the database did not confirm this change in time. Check whether it took effect before you send the request again, or repeat it with the same Idempotency-Key.',
  ),
  billing_unavailable: entry(503, 'server_error', 'Billing is unavailable. Nothing was charged; try again.'),
  pricing_unavailable: entry(503, 'server_error', 'This model has no price yet. Nothing was charged.'),
  queue_full: invalid(409, "This cluster's run queue is full."),
  runner_unavailable: entry(503, 'server_error', 'No runner for stacks is available on this installation.'),
  secrets_unavailable: entry(503, 'server_error', 'Secrets cannot be encrypted or read at the moment.'),
  mail_unavailable: entry(503, 'server_error', 'Email cannot be sent at the moment.'),
  overloaded: entry(503, 'server_error', 'Too many requests are running. Try again shortly.'),
} as const satisfies Record<string, ErrorEntry>;

export type ErrorCode = keyof typeof errorTable;

/** All codes. */
export const errorCodes = Object.keys(errorTable) as readonly ErrorCode[];

export interface ErrorOptions {
  /** Public text instead of the code's own. */
  readonly message?: string;
  /** Field of the request that is at fault. */
  readonly param?: string;
  /** Status instead of the code's own, for codes with several (upstream_error: 502, 503, 504). */
  readonly status?: number;
  /** Waiting does not help: no Retry-After is sent, and a header tells SDKs not to repeat the request. */
  readonly lasting?: boolean;
  /** Names in lower case. */
  readonly headers?: Readonly<Record<string, string>>;
  /** Name of the limit or setting that rejects the request, as operators set it. For logs; never a client's text. */
  readonly reason?: string;
  /** For logs only; never shown. */
  readonly cause?: unknown;
}

/** Default Retry-After of status 503. */
const unavailableSeconds = '1';

/** Tells SDKs of OpenAI and Anthropic, which repeat 409 and 5xx, not to repeat requests that would fail again. */
function defaultHeaders(status: number, lasting: boolean): Record<string, string> {
  if (lasting || status === 409 || status === 501) return { 'x-should-retry': 'false' };
  return status === 503 ? { 'retry-after': unavailableSeconds } : {};
}

/** Message of `insufficient_scope` where not every management key is enough. */
export const needsPlatformAdmin = 'This route requires a management key of a platform administrator.';

/** A rejection or failure with a code and a public text. */
export class AppError extends Error {
  readonly code: ErrorCode;
  readonly status: number;
  readonly type: ErrorType;
  readonly param: string | null;
  /** Null if code and param say everything. */
  readonly reason: string | null;
  readonly headers: Readonly<Record<string, string>>;

  constructor(code: ErrorCode, options: ErrorOptions = {}) {
    const { status, type, text } = errorTable[code];
    super(options.message ?? text, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = 'AppError';
    this.code = code;
    this.status = options.status ?? status;
    this.type = type;
    this.param = options.param ?? null;
    this.reason = options.reason ?? null;
    const waits = options.headers?.['retry-after'] !== undefined;
    this.headers = { ...(!waits && defaultHeaders(this.status, options.lasting === true)), ...options.headers };
  }
}

/** Returns the body of an error as OpenAI's clients read it. */
export function errorEnvelope(error: AppError): {
  error: { message: string; type: ErrorType; code: ErrorCode; param: string | null };
} {
  return { error: { message: error.message, type: error.type, code: error.code, param: error.param } };
}

/** Anthropic's error types by status. */
const anthropicTypes: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  408: 'timeout_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
};

/** Returns the body of an error as Anthropic's clients read it, with this table's code and the field at fault. */
export function anthropicEnvelope({ status, message, code, param }: AppError): {
  type: 'error';
  error: { type: string; message: string; code: ErrorCode; param: string | null };
} {
  const type = anthropicTypes[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error');
  return { type: 'error', error: { type, message, code, param } };
}
