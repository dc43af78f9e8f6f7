import { AppError } from '#base/errors.ts';
import type { AdmitRefusal } from '#core/admission/admission.ts';
import { limitHeaders } from '#edge/http/http.ts';

/** Fields of `PATCH /v1/keys/{id}` that change the limits. */
const limitNames: Readonly<Record<LimitRefused['code'], string>> = {
  rate_limit_exceeded: 'requests_per_minute',
  tokens_limit_exceeded: 'tokens_per_minute',
  monthly_quota_exceeded: 'monthly_token_limit',
  concurrency_limit_exceeded: 'max_concurrency',
};

const sentences: Readonly<Record<LimitRefused['code'], (limit: number) => string>> = {
  rate_limit_exceeded: (limit) => `This API key has used up its ${limit} requests per minute (requests_per_minute).`,
  tokens_limit_exceeded: (limit) => `This API key has used up its ${limit} tokens per minute (tokens_per_minute).`,
  monthly_quota_exceeded: (limit) =>
    `This API key has used up its ${limit} tokens for this month (monthly_token_limit).`,
  concurrency_limit_exceeded: (limit) =>
    `This API key may have at most ${limit} requests running at once (max_concurrency).`,
};

type LimitRefused = Extract<AdmitRefusal, { readonly limits: unknown }>;

/** Fields of `POST /v1/organization/projects/{id}/rate_limits/{rate_limit}` that change a project's limits. */
const projectLimits: Readonly<Record<OfProject['name'], { readonly field: string; readonly what: string }>> = {
  requestsPerMinute: { field: 'max_requests_per_1_minute', what: 'requests per minute' },
  tokensPerMinute: { field: 'max_tokens_per_1_minute', what: 'tokens per minute' },
  requestsPerDay: { field: 'max_requests_per_1_day', what: 'requests for this day (UTC)' },
};

type OfProject = NonNullable<LimitRefused['ofProject']>;

/** Returns the field of the exceeded limit, and a message about it. */
function namesOf({ code, ofProject, view: { limit } }: LimitRefused): {
  readonly reason: string;
  readonly message: string;
} {
  if (ofProject === undefined) return { reason: limitNames[code], message: sentences[code](limit) };
  const { field, what } = projectLimits[ofProject.name];
  const message = `This project has used up its ${limit} ${what} for the model "${ofProject.model}" (${field}).`;
  return { reason: field, message };
}

/** Returns the error for an exceeded limit. Its headers have the wait, in whole seconds rounded up, and the limit. */
export function limitError(refused: LimitRefused, nowMs: number): AppError {
  const seconds = Math.max(1, Math.ceil(refused.retryAfterMs / 1000));
  const headers: Record<string, string> = {
    ...limitHeaders(refused.limits, nowMs, refused.view),
    'retry-after': String(seconds),
  };
  // SDKs obey any wait, and a wait until tomorrow or next month would hang the call.
  const isLong = refused.code === 'monthly_quota_exceeded' || refused.ofProject?.name === 'requestsPerDay';
  if (isLong) headers['x-should-retry'] = 'false';
  return new AppError(refused.code, { ...namesOf(refused), headers });
}
