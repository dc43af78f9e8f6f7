import { expect, it } from 'vitest';
import { limitError } from '#edge/inference/answer/limit-error.ts';

it('computes Retry-After and reset times from the clock of the limits, not of the machine', () => {
  const nowMs = Date.UTC(2031, 4, 17);
  const view = { limit: 1, remaining: 0, resetAtMs: nowMs + 5000 };
  const limits = { requests: view, tokens: null, monthTokensLeft: null, concurrencyLeft: null };
  const refused = { ok: false, code: 'rate_limit_exceeded', view, limits, retryAfterMs: 5000 } as const;
  expect(limitError(refused, nowMs).headers).toMatchObject({
    'retry-after': '5',
    'x-ratelimit-reset': String(nowMs / 1000 + 5),
    'x-ratelimit-reset-requests': '5s',
  });
});
