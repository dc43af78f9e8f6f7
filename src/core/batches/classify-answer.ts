import type { LineAnswer } from './dependencies.ts';

/** Meaning of an answer for its line and for the batch. */
export type Verdict =
  | { readonly kind: 'completed' }
  | { readonly kind: 'failed' }
  /** The line is sent again, without effect on others; `counts` if the line itself may be the reason. */
  | { readonly kind: 'again'; readonly afterMs: number; readonly counts: boolean }
  /** There is not enough money for this line; another line may need less, or belong to another end user. */
  | { readonly kind: 'money'; readonly afterMs: number; readonly code: string }
  /** No request of the batch can run now. */
  | { readonly kind: 'wait'; readonly afterMs: number; readonly code: string }
  | { readonly kind: 'key' }
  /** The model of the batch is not offered, or not at a flex price. */
  | { readonly kind: 'model' };

const fundsMs = 5000;
const suspendedMs = 10_000;
const elsewhereMs = 1000;
const waitMsMax = 60_000;

/** Statuses caused by the request itself: another attempt would get the same answer. */
const final: ReadonlySet<number> = new Set([400, 404, 405, 409, 410, 411, 413, 414, 415, 422, 501]);

export function judge({ status, headers, body }: LineAnswer): Verdict {
  if (status >= 200 && status < 300) return { kind: 'completed' };
  if (status === 401) return { kind: 'key' };
  const retryMs = retryAfterMs(headers);
  const error = errorOf(body);
  if (isOfModel(error)) return { kind: 'model' };
  if (isOfProject(error)) return { kind: 'wait', afterMs: suspendedMs, code: 'project_archived' };
  const code = error.code ?? 'upstream_error';
  if (status === 402) return { kind: 'money', afterMs: fundsMs, code };
  const waitMs = waitOf(status, code, retryMs);
  if (waitMs !== null) return { kind: 'wait', afterMs: waitMs, code };
  // The same request runs at a gateway that is dead or stopping.
  if (status === 409 && retryMs !== null) return { kind: 'again', afterMs: elsewhereMs, counts: false };
  if (final.has(status)) return { kind: 'failed' };
  return { kind: 'again', afterMs: retryMs ?? 0, counts: true };
}

/** Returns how long the batch waits; null for answers that waiting does not fix. */
function waitOf(status: number, code: string, retryMs: number | null): number | null {
  if (code === 'organization_suspended') return suspendedMs;
  if (status === 429) return retryMs ?? fundsMs;
  return status === 503 ? retryMs : null;
}

function retryAfterMs(headers: LineAnswer['headers']): number | null {
  const seconds = Number(headers['retry-after'] ?? NaN);
  return Number.isFinite(seconds) ? Math.min(waitMsMax, Math.max(1, seconds) * 1000) : null;
}

interface ErrorFields {
  readonly code: string | null;
  readonly param: string | null;
  readonly message: string | null;
}

const text = (value: unknown): string | null => (typeof value === 'string' ? value : null);

function errorOf(body: Buffer): ErrorFields {
  try {
    const { error } = JSON.parse(body.toString('utf8')) as {
      error?: { code?: unknown; param?: unknown; message?: unknown };
    };
    return { code: text(error?.code), param: text(error?.param), message: text(error?.message) };
  } catch {
    return { code: null, param: null, message: null };
  }
}

/** True if the model or its tier was rejected. All lines use the same model and tier, so this applies to all lines. */
const isOfModel = ({ code, param }: ErrorFields): boolean =>
  code === 'model_not_found' || code === 'pricing_unavailable' || (code !== null && param === 'service_tier');

/**
 * True if the batch's project is archived. Lines cannot set a project: a field of that name in a line's body is
 * rejected with another message.
 */
const isOfProject = ({ param, message }: ErrorFields): boolean =>
  param === 'X-Project-ID' && message?.includes('is archived') === true;

/**
 * Returns the time until which a batch leaves the limits of its key and project to others, in milliseconds since the
 * Unix epoch; null while at least half of each limit is left.
 */
export function roomAgainMs(headers: LineAnswer['headers'], nowMs: number): number | null {
  const all = [...(['requests', 'tokens'] as const).flatMap((what) => shownOf(headers, what)), ...eachOf(headers)];
  const spent = all.filter(({ limit, remaining }) => remaining < Math.floor(limit / 2));
  if (spent.length === 0) return null;
  return nowMs + Math.min(waitMsMax, Math.max(...spent.map(({ resetMs }) => resetMs)));
}

interface LimitShown {
  readonly limit: number;
  readonly remaining: number;
  readonly resetMs: number;
}

/** Returns the limit with the least remaining. */
function shownOf(headers: LineAnswer['headers'], what: 'requests' | 'tokens'): readonly LimitShown[] {
  const [limit, remaining] = [headers[`x-ratelimit-limit-${what}`], headers[`x-ratelimit-remaining-${what}`]];
  if (limit === undefined || remaining === undefined) return [];
  const resetMs = durationMs(headers[`x-ratelimit-reset-${what}`] ?? '');
  return [{ limit: Number(limit), remaining: Number(remaining), resetMs }];
}

/** Returns all limits that apply to the request, from Headgate's own header. */
function eachOf(headers: LineAnswer['headers']): readonly LimitShown[] {
  const each = headers['x-headgate-limits'];
  if (each === undefined) return [];
  return each.split(', ').map((words) => {
    const [limit = 0, remaining = 0, resetMs = 0] = words.split(' ').map(Number);
    return { limit, remaining, resetMs };
  });
}

/** Converts OpenAI's format of durations, "6m0s", "1s", "250ms", to milliseconds. */
function durationMs(text: string): number {
  const units: Readonly<Record<string, number>> = { h: 3_600_000, m: 60_000, s: 1000, ms: 1 };
  return [...text.matchAll(/(\d+)(ms|h|m|s)/g)].reduce(
    (sum, [, n, unit]) => sum + Number(n) * (units[unit ?? ''] ?? 0),
    0,
  );
}
