import { html, type MaybeHtml } from './html.ts';
import { notice } from './ui.ts';

/**
 * Says that a page shows another organization than the visitor's own, and leads back.
 * @param id as the query names it; empty for one's own, of which nothing is said
 */
export function otherOrganization(id: string, ownPath: string): MaybeHtml {
  if (id === '') return null;
  return notice(
    'plain',
    html`<p>This is the organization <code>${id}</code>. <a href="${ownPath}">Back to your own</a>.</p>`,
  );
}
