import { AppError } from '#base/errors.ts';
import { type InferenceCaller, requireOpenProject } from '#edge/http/http.ts';
import type { Call } from '#edge/inference/call/call.ts';
import type { PathParts } from '#edge/inference/engine/engine.ts';

/**
 * Counts a request among the running ones of its key, whose revocation ends it from now on.
 * @throws AppError overloaded; the errors for an archived project and for too many unread answers
 */
export function acceptCaller(parts: PathParts, call: Call, caller: InferenceCaller): void {
  call.held.leave = parts.running.add(caller.key, call.stop);
  requirePlace(parts, caller);
  parts.shares.requireShare(caller.key.id);
  requireOpenProject(caller);
}

/** Reserves the last quarter of the places for organizations that use at most a quarter of all places. */
function requirePlace({ running, limits: { inFlightMax } }: PathParts, { key }: InferenceCaller): void {
  const quarter = Math.floor(inFlightMax / 4);
  if (running.size <= inFlightMax - quarter) return;
  if (running.size <= inFlightMax && running.countOf(key.organizationId) <= quarter) return;
  throw new AppError('overloaded', { headers: { 'retry-after': '1' }, reason: 'HEADGATE_MAX_IN_FLIGHT' });
}
