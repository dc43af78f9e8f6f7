import type { Clock } from '#base/clock.ts';
import type { Admission, KeyRef, Spender } from '#core/admission/admission.ts';
import type { LimitsView } from '#core/limits/limits.ts';
import { type InferenceCaller, limitHeaders } from '#edge/http/http.ts';
import type { Answer } from './client-answer.ts';

/** Members of a call that decide whether its answer shows limits. */
interface LimitedCall {
  readonly answer: Answer;
  readonly found: { readonly caller: InferenceCaller | null; readonly grant: object | null };
}

export function keyRefOf({ key }: InferenceCaller): KeyRef {
  return { organizationId: key.organizationId, keyId: key.id, limits: key };
}

export function spenderOf({ key, project }: InferenceCaller, user: string | null): Spender {
  return { organizationId: key.organizationId, keyId: key.id, projectId: project.id, user };
}

export function setLimitHeaders(answer: Answer, view: LimitsView, nowMs: number): void {
  for (const [name, value] of Object.entries(limitHeaders(view, nowMs))) answer.setHeader(name, value);
}

/** Shows each limit as "limit remaining milliseconds", if there are several of requests or tokens. For batches only. */
export function setEachLimit(answer: Answer, { each = [] }: LimitsView, nowMs: number): void {
  if (each.length === 0) return;
  const shown = each.map(({ limit, remaining, resetAtMs }) => `${limit} ${remaining} ${Math.ceil(resetAtMs - nowMs)}`);
  answer.setHeader('x-headgate-limits', shown.join(', '));
}

/** Shows the current limits for a request that ended before its limits were checked. */
export async function showLimits(
  { admission, clock }: { readonly admission: Admission; readonly clock: Clock },
  { answer, found }: LimitedCall,
): Promise<void> {
  if (found.caller === null || found.grant !== null || answer.clientLeft) return;
  const view = admission.view(keyRefOf(found.caller));
  const known = view instanceof Promise ? await view : view;
  setLimitHeaders(answer, known, clock.now());
}
