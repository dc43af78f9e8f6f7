import { AppError } from '#base/errors.ts';
import { type InferenceCaller, requireOpenProject } from '#edge/http/http.ts';
import type { Call } from './call.ts';
import type { PathParts } from './path-parts.ts';

/**
 * Counts a request among the running ones of its key, which can end it from now on.
 * @throws AppError overloaded; what refuses an archived project
 */
export function acceptCaller(parts: PathParts, call: Call, caller: InferenceCaller): void {
  call.held.leave = parts.running.add(caller.key, call.stop);
  requirePlace(parts, caller);
  parts.shares.requireShare(caller.key.id);
  requireOpenProject(caller);
}

/** The last quarter of the places is for organizations that hold less than a quarter of them. */
function requirePlace({ running, limits: { inFlightMax } }: PathParts, { key }: InferenceCaller): void {
  const quarter = Math.floor(inFlightMax / 4);
  if (running.size <= inFlightMax - quarter) return;
  if (running.size <= inFlightMax && running.countOf(key.organizationId) <= quarter) return;
  throw new AppError('overloaded', { headers: { 'retry-after': '1' }, reason: 'HEADGATE_MAX_IN_FLIGHT' });
}
