import type { UsageContentAnswer } from '#edge/contract/requests.ts';
import {
  formToken,
  html,
  type Html,
  type MaybeHtml,
  pathWith,
  queryOf,
  RefusedError,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Shows the prompt and answer of a request, if its key stores them. */

/** Formats JSON with indentation. Streams and truncated contents are texts, and stay unchanged. */
function shown(value: unknown): string {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

function part(id: string, title: string, value: unknown): MaybeHtml {
  if (value === null) return null;
  return html`<details class="fold">
    <summary>${title}</summary>
    <pre class="stored" id="${id}" tabindex="0">${shown(value)}</pre>
  </details>`;
}

export function contentSection(visit: Visit, id: string, content: UsageContentAnswer | null): Html {
  const title = html`<h2 id="content-title">Stored content</h2>`;
  if (content === null) {
    return html`<section aria-labelledby="content-title">
      ${title}
      <p class="quiet">
        No content is stored for this request. Keys with “Store requests and responses” store it for the time that the
        operator has set.
      </p>
    </section>`;
  }
  const action = pathWith(`/portal/usage/${id}/content/delete`, {
    organization_id: queryOf(visit.context, 'organization_id'),
  });
  return html`<section aria-labelledby="content-title">
    ${title} ${part('asked', 'Request', content.request)} ${part('got', 'Response', content.response)}
    ${content.truncated ? html`<p class="quiet">The content is truncated, because a body was longer than the storage limit.</p>` : null}
    <form method="post" action="${action}">
      ${formToken(visit)}
      <p class="buttons"><button class="danger">Delete stored content</button></p>
    </form>
  </section>`;
}

export async function deleteContent(visit: Visit, id: string): Promise<Response> {
  const of = { organization_id: queryOf(visit.context, 'organization_id') };
  const path = pathWith(`/v1/usage/requests/${encodeURIComponent(id)}/content`, of);
  const deleted = await visit.send('DELETE', path);
  if (!deleted.ok) throw new RefusedError(deleted.refusal);
  return visit.context.redirect(pathWith(`/portal/usage/${encodeURIComponent(id)}`, { ...of, notice: 'deleted' }), 303);
}
