import type { Run } from '#core/runs/runs.ts';
import type { HttpContext } from '#edge/http/http.ts';

/** Returns the program that a request for a run comes from. Only `portal` is certain: any program can be named `cli`. */
export function originOf(context: HttpContext): NonNullable<Run['origin']> {
  if (context.get('caller').actor.kind === 'user') return 'portal';
  return context.req.header('user-agent') === 'headgate-cli' ? 'cli' : 'api';
}
