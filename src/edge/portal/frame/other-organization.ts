import { html, type MaybeHtml, notice } from '#edge/portal/ui/ui.ts';

/**
 * Shows a notice that the page is about another organization than the visitor's own, with a link back.
 * @param id the organization in the query; empty for the visitor's own, which gets no notice
 */
export function otherOrganization(id: string, ownPath: string): MaybeHtml {
  if (id === '') return null;
  return notice(
    'plain',
    html`<p>
      You are viewing the organization <code>${id}</code>. <a href="${ownPath}">Back to your organization</a>.
    </p>`,
  );
}
