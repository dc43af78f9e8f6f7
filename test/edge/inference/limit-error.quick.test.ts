import { expect, it } from 'vitest';
import { limitError } from '#edge/inference/answer/limit-error.ts';

it('a refusal says when its limit is whole again by the clock of its limits, whatever the machine shows', () => {
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
