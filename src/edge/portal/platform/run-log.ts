import type { RunAnswer, RunLogAnswer, RunLogLineAnswer } from '#edge/contract/runs.ts';
import { count, headerOf, html, type Html, notice, queryOf, type Visit } from '#edge/portal/ui/ui.ts';
import { runPath } from './run-list.ts';

/** The log of a run. The page has the existing lines, and a script appends new ones. */

const shownMax = 1000;

/** Reads the last lines, or the lines after `?after=`. */
export function readLog(visit: Visit, run: RunAnswer): Promise<RunLogAnswer> {
  const asked = queryOf(visit.context, 'after');
  const after = /^\d{1,9}$/.test(asked) ? asked : Math.max(0, run.log_lines - shownMax);
  return visit.get<RunLogAnswer>(`/v1/runs/${run.id}/logs?after=${after}&limit=${shownMax}`);
}

export function logSection(run: RunAnswer, { data, expired, complete, next_after: next }: RunLogAnswer): Html {
  const path = runPath(run);
  const first = data[0]?.seq ?? 1;
  const before = Math.max(0, first - 1 - shownMax);
  return html`<section aria-labelledby="log-title">
    <div class="heading">
      <h2 id="log-title">Log</h2>
      <p class="actions">
        ${first > 1 ? html`<a href="${path}?after=${before}#log-title">Earlier lines</a>` : null}
        ${complete ? null : html`<a href="${path}#log-title" data-log-reload>Load newer lines</a>`}
      </p>
    </div>
    ${expired ? notice('plain', 'The log was deleted 90 days after the run ended.') : null}
    <div
      class="log"
      id="log"
      role="log"
      tabindex="0"
      aria-label="Run log"
      data-log="${complete ? '' : `${path}/log`}"
      data-after="${next}"
    >
      ${data.map(line)}
    </div>
    <p class="hint" id="log-state" role="status">
      ${complete ? (run.log_lines === 1 ? 'The only line of the run.' : `All ${count(run.log_lines)} lines of the run.`) : 'Log up to the time this page was loaded.'}
    </p>
  </section>`;
}

function line({ at, level, message }: RunLogLineAnswer): Html {
  const moment = html`<time class="log-time" datetime="${at}" title="${at}" data-local>${at.slice(11, 19)}</time>`;
  // The style keeps spaces, as a terminal does, so the template must not add any.
  return html`<p class="log-line ${level}">${moment} ${message}</p>`;
}

/** Streams events to the page's script, until the session ends. */
export async function followRunLog(visit: Visit, id: string): Promise<Response> {
  const after = queryOf(visit.context, 'after');
  const query = /^\d{1,9}$/.test(after) ? `?after=${after}` : '';
  const last = headerOf(visit.context, 'last-event-id') ?? '';
  const headers = { accept: 'text/event-stream', ...(/^\d{1,9}$/.test(last) && { 'last-event-id': last }) };
  const answer = await visit.open(`/v1/runs/${encodeURIComponent(id)}/logs${query}`, headers);
  return visit.context.body(answer.body ?? '', 200, { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' });
}
