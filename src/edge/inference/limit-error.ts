import { AppError } from '#base/errors.ts';
import type { AdmitRefusal } from '#core/admission/admission.ts';
import { limitHeaders } from '#edge/http/http.ts';

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
  return new AppError(refused.code, { headers });
}
