import type { Admission } from '#core/admission/admission.ts';
import type { LimitsView, LimitView } from '#core/limits/limits.ts';
import type { Caller } from './env.ts';

/** A wait as OpenAI writes it: "6m0s", "1s", "250ms". */
function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.ceil(ms))}ms`;
  const seconds = Math.ceil(ms / 1000);
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60), seconds % 60];
  return `${hours > 0 ? `${hours}h` : ''}${hours > 0 || minutes > 0 ? `${minutes}m` : ''}${rest}s`;
}

function openAiHeaders(kind: 'requests' | 'tokens', view: LimitView | null, nowMs: number): Record<string, string> {
  if (view === null) return {};
  return {
    [`x-ratelimit-limit-${kind}`]: String(view.limit),
    [`x-ratelimit-remaining-${kind}`]: String(view.remaining),
    [`x-ratelimit-reset-${kind}`]: formatDuration(view.resetAtMs - nowMs),
  };
}

/**
 * The headers of a key's limits: X-RateLimit-* (reset in Unix seconds) of the limit that refused, else of requests per
 * minute, and OpenAI's own for requests and tokens. A limit that there is not has no header.
 */
export function limitHeaders(
  view: LimitsView,
  refused: LimitView | null = null,
  nowMs = Date.now(),
): Record<string, string> {
  const shown = refused ?? view.requests;
  const headers = {
    ...openAiHeaders('requests', view.requests, nowMs),
    ...openAiHeaders('tokens', view.tokens, nowMs),
  };
  if (shown === null) return headers;
  return {
    'x-ratelimit-limit': String(shown.limit),
    'x-ratelimit-remaining': String(shown.remaining),
    'x-ratelimit-reset': String(Math.ceil(shown.resetAtMs / 1000)),
    ...headers,
  };
}

/** Headers that every authenticated answer carries, whatever it is about. */
export type ShowLimits = (caller: Caller) => Record<string, string> | Promise<Record<string, string>>;

/** @param admission says how the limits of a key stand, without counting anything */
export function createShowLimits(admission: Pick<Admission, 'view'>): ShowLimits {
  return ({ key }) => {
    const view = admission.view({ organizationId: key.organizationId, keyId: key.id, limits: key });
    return view instanceof Promise ? view.then((known) => limitHeaders(known)) : limitHeaders(view);
  };
}
