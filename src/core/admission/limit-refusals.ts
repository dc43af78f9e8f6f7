import type { LimitRefusal, LimitsView, ModelRefusal } from '#core/limits/limits.ts';
import type { AdmitRefusal, ProjectLimit } from './contract.ts';

/** A limit of a project that refuses, with whose it is. */
export interface RefusedOfProject {
  readonly limit: ProjectLimit;
  readonly refused: ModelRefusal;
}

export function modelRefusal(limit: ProjectLimit | null, refused: ModelRefusal | null): RefusedOfProject | null {
  return limit === null || refused === null ? null : { limit, refused };
}

/**
 * What a client is told where limits of its key, of its project or of both say no: the one that does for longest, after
 * which none of those that say no now does.
 */
export function refusalOf(
  ofKey: LimitRefusal | null,
  ofProject: RefusedOfProject | null,
  limits: LimitsView,
): AdmitRefusal {
  if (ofKey !== null && (ofProject === null || ofKey.retryAfterMs >= ofProject.refused.retryAfterMs)) {
    return { ok: false, ...ofKey, limits };
  }
  if (ofProject === null) throw new Error('a refusal of no limit');
  const { projectId, model } = ofProject.limit;
  const { name, view, retryAfterMs } = ofProject.refused;
  return { ok: false, code: 'rate_limit_exceeded', ofProject: { projectId, model, name }, view, retryAfterMs, limits };
}
