import type { UsageRequestAnswer } from '#edge/contract/requests.ts';
import {
  badge,
  count,
  html,
  type Html,
  type MaybeHtml,
  milliseconds,
  pathWith,
  table,
  timeInUtc,
  timeToSecond,
  usd,
} from '#edge/portal/ui/ui.ts';

export function outcomeBadge({ outcome, status, cache_hit }: UsageRequestAnswer): Html {
  if (outcome === 'completed') return cache_hit ? badge('plain', 'cached') : badge('good', 'completed');
  return outcome === 'aborted' ? badge('plain', 'client left') : badge('bad', `${outcome} ${status}`);
}

const clipped = (name: MaybeHtml): MaybeHtml =>
  typeof name === 'string' ? html`<span class="clipped" title="${name}">${name}</span>` : name;

interface Listing {
  /** The organization, if it is not the visitor's own. */
  readonly organization?: string;
  /** True if the list is filtered and summed by UTC days: times are shown in UTC. Otherwise in the reader's zone. */
  readonly isOfDays: boolean;
}

/** Lists requests, newest first, with links to their pages. */
export function requestsTable(
  requests: readonly UsageRequestAnswer[],
  keyName: (id: string) => MaybeHtml,
  { organization = '', isOfDays }: Listing,
): Html {
  const timeOf = isOfDays ? timeInUtc : timeToSecond;
  return table({
    caption: 'Requests, newest first',
    columns: [
      { title: isOfDays ? 'Time (UTC)' : 'Time' },
      { title: 'Model' },
      { title: 'Key' },
      { title: 'Outcome' },
      { title: 'Input', isNumber: true },
      { title: 'Output', isNumber: true },
      { title: 'Duration', isNumber: true },
      { title: 'Cost', isNumber: true },
    ],
    rows: requests.map((request) => [
      html`<a href="${pathWith(`/portal/usage/${request.id}`, { organization_id: organization })}"
        >${timeOf(request.created_at * 1000)}</a
      >`,
      request.fallback_for === null
        ? request.model
        : html`${request.model}<br /><span class="quiet">in place of ${request.fallback_for}</span>`,
      clipped(keyName(request.key_id)),
      outcomeBadge(request),
      count(request.input_tokens),
      count(request.output_tokens),
      milliseconds(request.timings_ms.total),
      usd(request.cost),
    ]),
  });
}
