import { assets } from '#edge/portal/assets.ts';
import { RefusedError, type Visit } from '#edge/portal/visit.ts';

/** What is passed on of stacks: their zips and their icons. */

/** Headers that a browser needs; all others are those of pages. */
const passed = ['content-type', 'content-disposition', 'etag'] as const;

/** The answer of the API as the visitor's browser gets it. */
export async function passOn(visit: Visit, path: string, headers: Readonly<Record<string, string>> = {}) {
  const answer = await visit.open(path, headers);
  for (const name of passed) {
    const value = answer.headers.get(name);
    if (value !== null) visit.context.header(name, value);
  }
  // Whatever it is, it is no page of ours.
  visit.context.header('content-security-policy', "default-src 'none'; sandbox");
  return visit.context.body(answer.body ?? '', 200);
}

export function downloadStack(visit: Visit, name: string): Promise<Response> {
  return passOn(visit, `/v1/stacks/${encodeURIComponent(name)}/download`);
}

/** An image that cannot be had is shown as a neutral one. */
export async function iconOfStack(visit: Visit, name: string): Promise<Response> {
  try {
    const answer = await passOn(visit, `/v1/stacks/${encodeURIComponent(name)}/icon`);
    answer.headers.set('cache-control', 'private, max-age=3600');
    return answer;
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error;
    return visit.context.redirect(assets.stack.path, 302);
  }
}
