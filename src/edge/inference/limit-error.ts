import { AppError } from '#base/errors.ts';
import type { AdmitRefusal } from '#core/admission/admission.ts';
import { limitHeaders } from '#edge/http/http.ts';

/** The fields of `PATCH /v1/keys/{id}`, where a limit is changed. */
const limitNames: Readonly<Record<LimitRefused['code'], string>> = {
  rate_limit_exceeded: 'requests_per_minute',
  tokens_limit_exceeded: 'tokens_per_minute',
  monthly_quota_exceeded: 'monthly_token_limit',
  concurrency_limit_exceeded: 'max_concurrency',
};

const sentences: Readonly<Record<LimitRefused['code'], (limit: number) => string>> = {
  rate_limit_exceeded: (limit) => `This key has used up its ${limit} requests per minute (requests_per_minute).`,
  tokens_limit_exceeded: (limit) => `This key has used up its ${limit} tokens per minute (tokens_per_minute).`,
  monthly_quota_exceeded: (limit) => `This key has used up its ${limit} tokens of this month (monthly_token_limit).`,
  concurrency_limit_exceeded: (limit) => `This key may have ${limit} requests running at once (max_concurrency).`,
};

type LimitRefused = Extract<AdmitRefusal, { readonly limits: unknown }>;

/** A limit's refusal: how long to wait, in whole seconds rounded up, and the limit that refused in the headers. */
export function limitError(refused: LimitRefused): AppError {
  const seconds = Math.max(1, Math.ceil(refused.retryAfterMs / 1000));
  const headers: Record<string, string> = {
    ...limitHeaders(refused.limits, refused.view),
    'retry-after': String(seconds),
  };
  // SDKs obey any wait, and one until next month would hang the call.
  if (refused.code === 'monthly_quota_exceeded') headers['x-should-retry'] = 'false';
  const reason = limitNames[refused.code];
  return new AppError(refused.code, { message: sentences[refused.code](refused.view.limit), headers, reason });
}
