import type { BatchAnswer } from '#edge/contract/batches.ts';
import type { CursorPageAnswer } from '#edge/contract/lists.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  count,
  empty,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  older,
  pathWith,
  queryOf,
  type Refusal,
  table,
  time,
  timeOf,
  type Visit,
} from '#edge/portal/ui/ui.ts';

/** Batches with their progress and results. Only programs create batches, with a key. */

const pageSize = 50;
const placePath = '/portal/batches';
const apiPath = (id: string): string => `/v1/batches/${encodeURIComponent(id)}`;
const pathOf = ({ id }: BatchAnswer): string => `${placePath}/${id}`;

const kinds: Readonly<Record<string, 'good' | 'busy' | 'bad' | 'plain'>> = {
  completed: 'good',
  failed: 'bad',
  expired: 'bad',
  cancelled: 'plain',
};
const statusBadge = ({ status }: BatchAnswer): Html => badge(kinds[status] ?? 'busy', status.replaceAll('_', ' '));
const endOf = (batch: BatchAnswer): number | null =>
  batch.completed_at ?? batch.failed_at ?? batch.expired_at ?? batch.cancelled_at;
const isCancellable = ({ status }: BatchAnswer): boolean => status === 'validating' || status === 'in_progress';

const reasons: Readonly<Record<string, string>> = {
  insufficient_funds: 'the balance is too low; add credit to continue',
  organization_suspended: 'organization suspended',
  project_archived: 'project archived',
  model_not_found: 'model not available to the key; the batch fails after one hour',
  rate_limit_exceeded: 'limit of requests per minute reached',
  tokens_limit_exceeded: 'limit of tokens per minute reached',
  monthly_quota_exceeded: 'limit of tokens per month reached',
  concurrency_limit_exceeded: 'limit of running requests reached',
};

function waits({ waiting_for: code }: BatchAnswer): MaybeHtml {
  return code === null ? null : html`<br /><span class="quiet">waiting: ${reasons[code] ?? code}</span>`;
}

function progress(batch: BatchAnswer): Html {
  const { total, completed, failed } = batch.request_counts;
  const done = completed + failed;
  if (total === 0)
    return html`<span class="quiet">${endOf(batch) === null ? 'not validated yet' : 'no requests'}</span>`;
  return html`<progress max="${total}" value="${done}" aria-label="Finished requests">${done} of ${total}</progress>
    ${count(done)} of ${count(total)}${failed === 0 ? null : html`, ${count(failed)} failed`}`;
}

export async function batchesPage(visit: Visit): Promise<Response> {
  const asked = { limit: pageSize, after: queryOf(visit.context, 'after') };
  const list = await visit.get<CursorPageAnswer<BatchAnswer>>(pathWith('/v1/batches', asked));
  const body = html`<p class="lead">
      A batch runs the requests of a file while engines have free capacity, at the flex price. Create batches with
      <a href="/docs">the API</a> or “headgate batches create FILE”.
    </p>
    ${list.data.length === 0 ? empty('No batches yet', 'Create one with the API or the command line.') : batchTable(list.data)}
    ${older(list.has_more ? pathWith(placePath, { after: list.last_id }) : null)}`;
  return page(visit, { title: 'Batches', body });
}

function batchTable(batches: readonly BatchAnswer[]): Html {
  return table({
    caption: 'Batches, newest first',
    columns: [
      { title: 'Batch', isWide: true },
      { title: 'Status' },
      { title: 'Progress' },
      { title: 'Model' },
      { title: 'Created' },
    ],
    rows: batches.map((batch) => [
      html`<a href="${pathOf(batch)}"><code>${batch.id}</code></a>`,
      html`${statusBadge(batch)}${waits(batch)}`,
      progress(batch),
      batch.model ?? html`<span class="quiet">–</span>`,
      time(batch.created_at * 1000),
    ]),
  });
}

export async function batchPage(visit: Visit, id: string): Promise<Response> {
  return showBatch(visit, await visit.get<BatchAnswer>(apiPath(id)), null);
}

function showBatch(visit: Visit, batch: BatchAnswer, refusal: Refusal | null): Response | Promise<Response> {
  const body = html`${refusal === null ? null : notice('bad', refusal.message)} ${facts(batch)} ${files(batch)}
  ${faults(batch)} ${isCancellable(batch) ? cancelForm(visit, batch) : null}`;
  return page(visit, { title: 'Batch', body, status: refusal === null ? 200 : statusOf(refusal) });
}

function facts(batch: BatchAnswer): Html {
  const pairs = Object.entries(batch.metadata ?? {});
  const ended = endOf(batch);
  return html`<dl class="facts">
    <dt>Batch</dt>
    <dd><code>${batch.id}</code></dd>
    <dt>Status</dt>
    <dd>${statusBadge(batch)}${waits(batch)}</dd>
    <dt>Progress</dt>
    <dd>${progress(batch)}</dd>
    <dt>Endpoint</dt>
    <dd><code>${batch.endpoint}</code></dd>
    <dt>Model</dt>
    <dd>${batch.model ?? (ended === null ? 'not known yet' : 'none')}</dd>
    <dt>Created</dt>
    <dd>${time(batch.created_at * 1000)}</dd>
    <dt>Started</dt>
    <dd>${timeOf(batch.in_progress_at, ended === null ? 'not yet' : 'never')}</dd>
    <dt>Ended</dt>
    <dd>${timeOf(ended, 'not yet')}</dd>
    <dt>Expires</dt>
    <dd>${time(batch.expires_at * 1000)}</dd>
    ${pairs.map(
      ([name, value]) =>
        html`<dt>${name}</dt>
          <dd class="wrap">${value}</dd>`,
    )}
  </dl>`;
}

function files(batch: BatchAnswer): MaybeHtml {
  const { output_file_id: output, error_file_id: errors } = batch;
  if (output === null && errors === null) return null;
  return html`<p class="buttons">
    ${output === null ? null : html`<a class="button" href="${pathOf(batch)}/output" download>Download results</a>`}
    ${errors === null ? null : html`<a class="button" href="${pathOf(batch)}/errors" download>Download errors</a>`}
  </p>`;
}

function faults({ errors }: BatchAnswer): MaybeHtml {
  if (errors === null) return null;
  return table({
    caption: 'Errors',
    columns: [{ title: 'Line', isNumber: true }, { title: 'Message', isWide: true }, { title: 'Code' }],
    rows: errors.data.map(({ line, message, code }) => [
      line === null ? '–' : count(line),
      html`<span class="wrap">${message}</span>`,
      html`<code>${code}</code>`,
    ]),
  });
}

function cancelForm(visit: Visit, batch: BatchAnswer): Html {
  return html`<form method="post" action="${pathOf(batch)}/cancel">
    ${formToken(visit)}
    <p class="quiet">Finished requests are charged, and their results stay available. Running requests are stopped.</p>
    <p class="buttons"><button>Cancel batch</button></p>
  </form>`;
}

export async function cancelBatch(visit: Visit, id: string): Promise<Response> {
  const cancelled = await visit.send<BatchAnswer>('POST', `${apiPath(id)}/cancel`);
  if (cancelled.ok) return visit.context.redirect(pathOf(cancelled.body), 303);
  return showBatch(visit, await visit.get<BatchAnswer>(apiPath(id)), cancelled.refusal);
}

/** Sends the output or error file of a batch unchanged. */
export async function batchFile(visit: Visit, id: string, kind: 'output' | 'errors'): Promise<Response> {
  const batch = await visit.get<BatchAnswer>(apiPath(id));
  const fileId = kind === 'output' ? batch.output_file_id : batch.error_file_id;
  if (fileId === null) return showBatch(visit, batch, noFile);
  const { body } = await visit.open(`/v1/files/${fileId}/content`);
  visit.context.header('content-type', 'application/jsonl; charset=utf-8');
  visit.context.header('content-disposition', `attachment; filename="${batch.id}_${kind}.jsonl"`);
  return visit.context.body(body ?? '', 200);
}

const noFile: Refusal = {
  status: 404,
  message: 'This batch has no such file. Results and errors are available only if it produced any.',
  problems: new Map(),
};
