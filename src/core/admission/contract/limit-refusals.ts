import type { LimitRefusal, LimitsView, ModelRefusal } from '#core/limits/limits.ts';
import type { AdmitRefusal, ProjectLimit } from './types.ts';

/** A project limit that rejects a request, and its refusal. */
export interface RefusedOfProject {
  readonly limit: ProjectLimit;
  readonly refused: ModelRefusal;
}

export function modelRefusal(limit: ProjectLimit | null, refused: ModelRefusal | null): RefusedOfProject | null {
  return limit === null || refused === null ? null : { limit, refused };
}

/**
 * Returns the rejection for the client if limits of its key, of its project or of both reject: the one that lasts
 * longest. After it, none of the limits that reject now still does.
 */
export function refusalOf(
  ofKey: LimitRefusal | null,
  ofProject: RefusedOfProject | null,
  limits: LimitsView,
): AdmitRefusal {
  if (ofKey !== null && (ofProject === null || ofKey.retryAfterMs >= ofProject.refused.retryAfterMs)) {
    return { ok: false, ...ofKey, limits };
  }
  if (ofProject === null) throw new Error('a rejection without a limit');
  const { projectId, model } = ofProject.limit;
  const { name, view, retryAfterMs } = ofProject.refused;
  return { ok: false, code: 'rate_limit_exceeded', ofProject: { projectId, model, name }, view, retryAfterMs, limits };
}
