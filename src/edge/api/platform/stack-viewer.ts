import { userIdOf } from '#core/audit/audit.ts';
import type { StackViewer } from '#core/stacks/stacks.ts';
import type { HttpContext } from '#edge/http/http.ts';

/** Returns the caller as a viewer of the catalog of stacks. */
export function viewerOf(context: HttpContext): StackViewer {
  const { actor, platformRole, scope } = context.get('caller');
  return { userId: userIdOf(actor), isAdmin: platformRole === 'admin' && scope === 'management' };
}
