import type { Clock } from '#base/clock.ts';
import type { Admission } from '#core/admission/admission.ts';
import type { LimitsView, LimitView } from '#core/limits/limits.ts';
import type { Caller } from './http-context.ts';

/** Formats a wait as OpenAI writes it: "6m0s", "1s", "250ms". */
function formatDuration(ms: number): string {
  if (ms < 1000) return `${Math.max(0, Math.ceil(ms))}ms`;
  const seconds = Math.ceil(ms / 1000);
  const [hours, minutes, rest] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60), seconds % 60];
  return `${hours > 0 ? `${hours}h` : ''}${hours > 0 || minutes > 0 ? `${minutes}m` : ''}${rest}s`;
}

/**
 * Returns the headers of a key's limits: X-RateLimit-* (reset in Unix seconds) of the limit that rejected the request,
 * otherwise of requests per minute, and OpenAI's own headers for requests and tokens. A limit that is not set has no
 * header.
 * @param nowMs by the clock that the limits use: the clock of the machine may be wrong
 */
export function limitHeaders(
  { requests, tokens }: LimitsView,
  nowMs: number,
  refused: LimitView | null = null,
): Record<string, string> {
  const shown = refused ?? requests;
  const headers: Record<string, string> = {};
  if (shown !== null) {
    headers['x-ratelimit-limit'] = String(shown.limit);
    headers['x-ratelimit-remaining'] = String(shown.remaining);
    headers['x-ratelimit-reset'] = String(Math.ceil(shown.resetAtMs / 1000));
  }
  if (requests !== null) {
    headers['x-ratelimit-limit-requests'] = String(requests.limit);
    headers['x-ratelimit-remaining-requests'] = String(requests.remaining);
    headers['x-ratelimit-reset-requests'] = formatDuration(requests.resetAtMs - nowMs);
  }
  if (tokens !== null) {
    headers['x-ratelimit-limit-tokens'] = String(tokens.limit);
    headers['x-ratelimit-remaining-tokens'] = String(tokens.remaining);
    headers['x-ratelimit-reset-tokens'] = formatDuration(tokens.resetAtMs - nowMs);
  }
  return headers;
}

/** Returns the headers that every authenticated answer carries; none for callers without a key. */
export type ShowLimits = (caller: Caller) => Record<string, string> | Promise<Record<string, string>>;

/** @param admission returns the state of a key's limits without counting anything */
export function createShowLimits(admission: Pick<Admission, 'view'>, clock: Pick<Clock, 'now'>): ShowLimits {
  return ({ actor }) => {
    if (actor.kind !== 'key') return {};
    const { key } = actor;
    const view = admission.view({ organizationId: key.organizationId, keyId: key.id, limits: key });
    const headersOf = (known: LimitsView): Record<string, string> => limitHeaders(known, clock.now());
    return view instanceof Promise ? view.then(headersOf) : headersOf(view);
  };
}
