import { assets } from '#edge/portal/frame/frame.ts';
import { pathWith, queryOf, RefusedError, type Visit } from '#edge/portal/ui/ui.ts';

/** Passes on zips and icons of stacks from the API. */

/** Headers that the browser needs. All other headers are those of the portal's pages. */
const passed = ['content-type', 'content-disposition', 'etag'] as const;

/** Sends the API's answer to the visitor's browser. */
export async function passOn(visit: Visit, path: string, headers: Readonly<Record<string, string>> = {}) {
  const answer = await visit.open(path, headers);
  for (const name of passed) {
    const value = answer.headers.get(name);
    if (value !== null) visit.context.header(name, value);
  }
  // The file may be anything: the browser must not treat it as a page of the portal.
  visit.context.header('content-security-policy', "default-src 'none'; sandbox");
  return visit.context.body(answer.body ?? '', 200);
}

export function downloadStack(visit: Visit, name: string): Promise<Response> {
  const version = queryOf(visit.context, 'version');
  const path = `/v1/stacks/${encodeURIComponent(name)}/download`;
  return passOn(visit, pathWith(path, { version }));
}

/** Sends the stack's icon, or redirects to the default icon if there is none. */
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
