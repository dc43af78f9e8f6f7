import type { KeyAnswer, LimitsAnswer } from '#edge/contract/keys.ts';
import type { UsageContentAnswer, UsageRequestDetailAnswer } from '#edge/contract/requests.ts';
import { otherOrganization, page } from '#edge/portal/frame/frame.ts';
import {
  count,
  figures,
  html,
  type Html,
  mark,
  type MaybeHtml,
  milliseconds,
  notice,
  pathWith,
  type PortalParts,
  queryOf,
  type Span,
  table,
  timelineChart,
  timeToSecond,
  usd,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { rejectedPage } from './rejected.ts';
import { outcomeBadge } from './requests-table.ts';
import { contentSection } from './request-content.ts';
import { costSection } from './request-cost.ts';

/** Explains one request: its timing, the remaining limits and its cost. */

const spanNames = {
  admitted: ['Admission', 'check of the key, body, limits and wallet'],
  queued: ['Queue', 'wait for capacity on a running engine'],
  engine_cold_start: ['Cold start', 'wait for the engine to start'],
  first_byte: ['First byte', 'engine time until the first byte'],
  last_byte: ['Answer', 'engine time from the first to the last byte'],
  committed: ['Record', 'write of the cost record, before the response ends'],
} as const;

type SpanName = keyof typeof spanNames;

const pathOf = (id: string): string => `/v1/usage/requests/${encodeURIComponent(id)}`;

export async function requestPage(visit: Visit, { settleTimeoutMs }: PortalParts, id: string): Promise<Response> {
  const of = { organization_id: queryOf(visit.context, 'organization_id') };
  const [request, content] = await Promise.all([
    visit.find<UsageRequestDetailAnswer>(pathWith(pathOf(id), of)),
    visit.mayOwn('usage.contents') ? visit.find<UsageContentAnswer>(pathWith(`${pathOf(id)}/content`, of)) : null,
  ]);
  if (request === null) return (await rejectedPage(visit, id, of.organization_id)) ?? noRequest(visit, id);
  const key = visit.may('keys') ? await visit.find<KeyAnswer>(pathWith(`/v1/keys/${request.key_id}`, of)) : null;
  const isDeleted = visit.takeNotice() === 'deleted';
  const body = html`${isDeleted ? notice('good', 'Stored content deleted. The record of the cost is kept.') : null}
  ${otherOrganization(of.organization_id, '/portal/usage')} ${lateNotice(request, settleTimeoutMs)}
  ${head(request, key)} ${timeline(request)} ${costSection(request)} ${contentSection(visit, request.id, content)}
  ${limits(request)} ${facts(request)}`;
  return page(visit, {
    title: 'Request details',
    actions: html`<a class="button" href="/portal/usage">All usage</a>`,
    body,
  });
}

/** Shows that no request with this id is known, with the reasons that this may have. */
function noRequest(visit: Visit, id: string): Response | Promise<Response> {
  const body = html`<p>
      No request with the id <code>${id}</code> is recorded in this organization. The id is the value of
      <code>x-request-id</code> in the response.
    </p>
    <ul>
      <li>A running request is recorded when it ends.</li>
      <li>Of rejected requests, the first 30 of each minute are kept for 7 days.</li>
      <li>A request without a valid key belongs to no organization.</li>
    </ul>`;
  const actions = html`<a class="button" href="/portal/usage">All usage</a>`;
  return page(visit, { title: 'Request not found', actions, body, status: 404 });
}

/** Explains a charge for a response that the client did not get, because its record came too late. */
function lateNotice({ timeline: spans }: UsageRequestDetailAnswer, settleTimeoutMs: number): MaybeHtml {
  const ms = spans?.committed ?? 0;
  if (ms < settleTimeoutMs) return null;
  return notice(
    'bad',
    html`The client got the error <code>billing_unavailable</code> at the end of this request, instead of the response:
      recording its cost took ${milliseconds(ms)}, and a response waits at most ${milliseconds(settleTimeoutMs)} for
      that. The tokens were generated, so they are charged.`,
  );
}

/** @param key null if the visitor may not see the key */
function head(request: UsageRequestDetailAnswer, key: KeyAnswer | null): Html {
  return figures([
    { label: 'Cost', value: usd(request.cost), note: request.cache_hit ? 'cached, free' : undefined },
    { label: 'Outcome', value: outcomeBadge(request), note: request.reason ?? `HTTP ${request.status}` },
    { label: 'Time', value: timeToSecond(request.created_at * 1000) },
    { label: 'Duration', value: milliseconds(wholeMs(request)), note: timeNote(request) },
    {
      label: 'Model',
      value: html`<a href="/portal/models/${encodeURIComponent(request.model)}">${request.model}</a>`,
      note: request.fallback_for === null ? request.endpoint : `in place of ${request.fallback_for}`,
    },
    {
      label: 'Key',
      value:
        key === null ? html`<code>${request.key_id}</code>` : html`<a href="/portal/keys/${key.id}">${key.name}</a>`,
    },
  ]);
}

/**
 * Milliseconds until the last byte was sent, which waits for the commit of the record. Excludes the commit if its
 * duration is unknown.
 */
const wholeMs = ({ timings_ms: { total }, timeline: spans }: UsageRequestDetailAnswer): number =>
  total + (spans?.committed ?? 0);

function timeNote(request: UsageRequestDetailAnswer): string | undefined {
  const { total } = request.timings_ms;
  return wholeMs(request) === total ? undefined : `${milliseconds(total)} without the record`;
}

function timeline(request: UsageRequestDetailAnswer): Html {
  const { timeline: spans } = request;
  if (spans === null) return html`<p class="quiet">No timing steps are recorded for this request.</p>`;
  const list = (Object.keys(spanNames) as SpanName[]).map((name): Span & { readonly why: string } => ({
    name: spanNames[name][0],
    why: spanNames[name][1],
    ms: spans[name] ?? 0,
  }));
  const total = wholeMs(request);
  const share = (ms: number): string => (total === 0 ? '–' : `${((ms / total) * 100).toFixed(0)} %`);
  return html`<section aria-labelledby="time-title">
    <h2 id="time-title">Timing</h2>
    ${timelineChart(list, `Timing of ${milliseconds(total)}, to scale; the table below has the numbers`)}
    ${table({
      caption: 'Request steps',
      columns: [
        { title: 'Step' },
        { title: 'Description' },
        { title: 'Time', isNumber: true },
        { title: 'Share', isNumber: true },
      ],
      rows: list.map(({ name, why, ms }, index) => [
        html`${mark(index)}${name}`,
        html`<span class="quiet">${why}</span>`,
        milliseconds(ms),
        share(ms),
      ]),
      foot: ['Total', '', milliseconds(total), ''],
    })}
  </section>`;
}

const limitNames: Readonly<Record<keyof LimitsAnswer, string>> = {
  requests_per_minute: 'Requests per minute',
  tokens_per_minute: 'Tokens per minute',
  max_concurrency: 'Concurrent requests',
  monthly_token_limit: 'Tokens per month',
};

function limits({ limits_remaining: left }: UsageRequestDetailAnswer): MaybeHtml {
  if (left === null) return null;
  const rows = (Object.keys(limitNames) as (keyof LimitsAnswer)[]).map((name): MaybeHtml[] => {
    const value = left[name];
    return [limitNames[name], value === null ? html`<span class="quiet">no limit</span>` : count(value)];
  });
  return html`<section aria-labelledby="limits-title">
    <h2 id="limits-title">Remaining key limits</h2>
    ${table({ caption: 'Limits at admission', columns: [{ title: 'Limit' }, { title: 'Remaining', isNumber: true }], rows })}
  </section>`;
}

function facts(request: UsageRequestDetailAnswer): Html {
  const { id, client_request_id, end_user, replica, stream, fallback_for, endpoint } = request;
  const age = replica === null || replica.age_seconds === null ? '' : `, ready for ${count(replica.age_seconds)} s`;
  return html`<section aria-labelledby="facts-title">
    <h2 id="facts-title">Identifiers</h2>
    <dl class="facts">
      <dt>Request id</dt>
      <dd><code>${id}</code></dd>
      ${
        client_request_id === null
          ? null
          : html`<dt>Client request id</dt>
              <dd><code>${client_request_id}</code></dd>`
      }
      ${
        end_user === null
          ? null
          : html`<dt>End user</dt>
              <dd>${end_user}</dd>`
      }
      <dt>Endpoint</dt>
      <dd><code>${endpoint}</code></dd>
      ${
        fallback_for === null
          ? null
          : html`<dt>Requested model</dt>
              <dd><code>${fallback_for}</code> (unavailable; the request allowed a fallback)</dd>`
      }
      <dt>Response</dt>
      <dd>${stream ? 'stream' : 'JSON'}</dd>
      ${
        replica === null
          ? null
          : html`<dt>Replica</dt>
              <dd><code>${replica.id}</code>${age}</dd>`
      }
    </dl>
  </section>`;
}
