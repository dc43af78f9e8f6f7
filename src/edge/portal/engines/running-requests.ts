import type { RunningRequestAnswer, RunningRequestListAnswer } from '#edge/contract/engines.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import { badge, count, empty, formToken, html, type Html, notice, table, type Visit } from '#edge/portal/ui/ui.ts';
import { duration, engineApiPath, enginePath } from './engine-words.ts';

/** The running requests of an engine, each with a button that cancels it. */

const shownMax = 50;

export async function readRunning(visit: Visit, engineId: string): Promise<readonly RunningRequestAnswer[]> {
  return (await visit.get<RunningRequestListAnswer>(engineApiPath(engineId, '/requests'))).data;
}

const kinds = { queued: 'plain', processing: 'busy', answering: 'good' } as const;

/** @param requests oldest first */
export function runningTable(
  visit: Visit,
  engineId: string,
  requests: readonly RunningRequestAnswer[],
  nowMs: number,
): Html {
  if (requests.length === 0)
    return empty('No running requests', 'Requests of this gateway appear here while they run.');
  const shown = requests.slice(0, shownMax);
  const rest = requests.length - shown.length;
  const cancel = ({ id }: RunningRequestAnswer): Html =>
    html`<form method="post" action="${enginePath(engineId, `/requests/${id}/cancel`)}">
      ${formToken(visit)}<button class="danger" aria-label="Cancel request ${id}">Cancel</button>
    </form>`;
  return html`${table({
      caption: 'Running requests of this gateway, oldest first',
      columns: [
        { title: 'Request', isWide: true },
        { title: 'State' },
        { title: 'Time' },
        { title: 'Model' },
        { title: 'Organization, key' },
        { title: 'End user' },
        { title: 'Cancel' },
      ],
      rows: shown.map((one) => [
        html`<code>${one.id}</code><br /><span class="quiet">${one.endpoint}</span>`,
        badge(kinds[one.state], one.state),
        duration(nowMs - one.created_at * 1000),
        one.model,
        html`<a href="/portal/organizations/${one.organization_id}"><code>${one.organization_id}</code></a
          ><br /><code>${one.key_id}</code>`,
        one.end_user ?? html`<span class="quiet">none</span>`,
        cancel(one),
      ]),
    })}
    <p class="quiet">
      ${rest === 0 ? null : html`And ${count(rest)} more.`} A canceled request ends with an error; the tokens that the
      engine has counted are charged.
    </p>`;
}

export async function cancelRequest(visit: Visit, engineId: string, requestId: string): Promise<Response> {
  const path = engineApiPath(engineId, `/requests/${encodeURIComponent(requestId)}/cancel`);
  const done = await visit.send<RunningRequestAnswer>('POST', path);
  if (done.ok) return visit.context.redirect(`${enginePath(engineId)}?notice=canceled`, 303);
  const body = html`${notice('bad', done.refusal.message)}
    <p class="buttons"><a class="button" href="${enginePath(engineId)}">Back to engine</a></p>`;
  return page(visit, { title: 'Request not canceled', body, status: statusOf(done.refusal) });
}
