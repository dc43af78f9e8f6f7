import { formatId } from '#base/id.ts';
import type { ClusterAnswer } from '#edge/contract/clusters.ts';
import type { KeyAnswer } from '#edge/contract/keys.ts';
import type { RunAnswer, RunPlanAnswer } from '#edge/contract/runs.ts';
import type { UserAnswer } from '#edge/contract/users.ts';
import { assets, page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  copyable,
  count,
  counted,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  pathWith,
  type Refusal,
  refused,
  RefusedError,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { valueText } from './input-fields.ts';
import { logSection, readLog } from './run-log.ts';
import { driftSection, planSection } from './run-plan.ts';
import { runPath } from './run-list.ts';
import {
  choicesOf,
  driftBadge,
  expiryText,
  failureWords,
  isUnfinished,
  progress,
  statusBadge,
  statusSentence,
} from './run-words.ts';
import { actionButton, facts, moment } from './widgets.ts';

/** One run: its progress, its result and its actions. */

const notices: Readonly<Record<string, string>> = {
  canceled: 'Cancellation requested.',
  confirmed: 'Plan confirmed. The run applies it next.',
  discarded: 'Plan discarded.',
  drift_check: 'Drift check requested.',
  drift_checks: 'Regular drift checks changed.',
  expiry: 'Expiry changed.',
  forgotten: 'The record of the resources is deleted. The resources themselves still exist.',
};

export const readRun = ({ get }: Visit, id: string): Promise<RunAnswer> =>
  get<RunAnswer>(`/v1/runs/${encodeURIComponent(id)}`);

/** Returns null if the cluster cannot be read, such as a cluster of another organization. */
export async function readClusterOf({ get }: Visit, { cluster_id: id }: RunAnswer): Promise<ClusterAnswer | null> {
  try {
    return await get<ClusterAnswer>(`/v1/clusters/${id}`);
  } catch (error) {
    if (error instanceof RefusedError) return null;
    throw error;
  }
}

export function titleOf({ operation, stack, drift_check_of: checked }: RunAnswer): string {
  if (checked !== null) return `${stack} (drift check)`;
  return operation === 'destroy' ? `${stack} (destroy)` : stack;
}

interface Seen {
  readonly run: RunAnswer;
  readonly cluster: ClusterAnswer | null;
  readonly authorName: string | null;
  /** False if the stack was deleted. A run's resources may outlive its stack. */
  readonly hasStack: boolean;
}

export async function runPage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const run = await readRun(visit, id);
  const [cluster, log, authorName, stack, plan] = await Promise.all([
    readClusterOf(visit, run),
    readLog(visit, run),
    readAuthorName(visit, run),
    visit.find(`/v1/stacks/${run.stack_id}`),
    run.planned_at === null ? null : visit.find<RunPlanAnswer>(`/v1/runs/${run.id}/plan`),
  ]);
  const path = runPath(run);
  const said = noticeOf(visit, notices);
  // The live part refreshes itself by polling. The log below has its own script.
  const polls = html`hx-get="${path}" hx-select="#live" hx-trigger="every 2s, log-ended from:body" hx-swap="outerHTML"
  hx-headers='{"X-Poll":"1"}'`;
  const body = html`${said === undefined ? null : notice('good', said)} ${refused(refusal)}
    <div id="live" ${isChanging(run) ? polls : null}>
      ${state(run)} ${failure(run)}
      <div class="actions">${actions(visit, run)}</div>
      ${plan === null ? null : planSection(plan, run.drift_check_of !== null)} ${address(visit, run, cluster)}
      ${driftSection(visit, run)} ${outputs(run)} ${inputs(run)}
      ${about(visit, { run, cluster, authorName, hasStack: stack !== null })}
    </div>
    ${logSection(run, log)}`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: titleOf(run), body, status, script: assets.runs });
}

/** True if the run has an address that is not ready yet. */
const isAddressPending = ({ url, url_status: status }: RunAnswer): boolean => url !== null && status !== 'ready';

/** True if the page shows something that changes soon. */
const isChanging = (run: RunAnswer): boolean =>
  isUnfinished(run) || isAddressPending(run) || (run.drift?.pending_run_id ?? null) !== null;

function actions(visit: Visit, run: RunAnswer): MaybeHtml {
  const [path, may] = [runPath(run), choicesOf(run)];
  const confirm =
    run.operation === 'destroy'
      ? actionButton(visit, `${path}/confirm`, 'Confirm and destroy', 'danger')
      : actionButton(visit, `${path}/confirm`, 'Confirm and apply', 'primary');
  const discard = actionButton(visit, `${path}/discard`, 'Discard', run.operation === 'destroy' ? '' : 'danger');
  const buttons: readonly (readonly [boolean, Html])[] = [
    [may.decide, confirm],
    [may.decide, discard],
    [may.cancel, actionButton(visit, `${path}/cancel`, 'Cancel', 'danger')],
    [may.retry, actionButton(visit, `${path}/retry`, 'Retry', 'primary')],
    [may.expire, html`<a class="button" href="${path}/expiry">Change expiry</a>`],
    [may.destroy, html`<a class="button danger" href="${path}/destroy">Destroy</a>`],
  ];
  const forget = html`<a class="button danger" href="${path}/forget">Forget</a>`;
  return [
    ...buttons.flatMap(([isOffered, button]) => (isOffered && visit.may('runs') ? [button] : [])),
    ...(may.forget && visit.may('runs.forget') ? [forget] : []),
  ];
}

function changesText({ operation, add, change, remove }: NonNullable<RunAnswer['changes']>, run: RunAnswer): string {
  if (run.drift_check_of !== null) return `Drift: ${count(change)} changed, ${count(remove)} deleted.`;
  return operation === 'plan'
    ? `Plan: ${count(add)} to add, ${count(change)} to change, ${count(remove)} to remove.`
    : `${count(add)} added, ${count(change)} changed, ${count(remove)} removed.`;
}

function state(run: RunAnswer): Html {
  const { changes } = run;
  return html`<section aria-labelledby="state-title">
    <h2 id="state-title">Status ${statusBadge(run)} ${driftBadge(run)}</h2>
    ${progress(run)}
    <p>${statusSentence(run)}</p>
    ${run.confirm_by === null ? null : html`<p>The plan waits until ${moment(run.confirm_by)}. Then the run fails.</p>`}
    ${run.queue_position === null ? null : html`<p>Place in the queue of the cluster: <strong>${count(run.queue_position)}</strong></p>`}
    ${changes === null ? null : html`<p><strong>${changesText(changes, run)}</strong></p>`}
  </section>`;
}

function failure(run: RunAnswer): MaybeHtml {
  const words = failureWords(run);
  if (words === null) return null;
  const [what, todo] = words;
  return notice(
    'bad',
    html`<p><strong>${what}</strong></p>
      ${run.failure_message === null ? null : html`<p class="prose">${run.failure_message}</p>`}
      <p>${todo}</p>
      <p class="quiet">${run.failure_code}</p>`,
  );
}

const addressWords = {
  pending: ['busy', 'not checked yet'],
  ready: ['good', 'reachable'],
  unreachable: ['bad', 'unreachable'],
} as const;

function address(visit: Visit, run: RunAnswer, cluster: ClusterAnswer | null): MaybeHtml {
  const { url, url_status: status, url_problem: problem } = run;
  if (url === null) {
    return problem === null ? null : notice('bad', html`<p><strong>No web address:</strong> ${problem}</p>`);
  }
  const [kind, text] = addressWords[status ?? 'pending'];
  // The cluster's access may be stricter than the run's.
  const isMembers = run.access === 'members' || cluster?.access !== 'public';
  return html`<section aria-labelledby="address">
    <h2 id="address">Web address ${badge(kind, text)}</h2>
    ${copyable('url', url)}
    <div class="actions">
      ${isMembers ? actionButton(visit, `${runPath(run)}/open`, 'Open', 'primary') : html`<a class="button primary" href="${url}" target="_blank" rel="noopener noreferrer">Open</a>`}
    </div>
    <p class="hint">
      ${isMembers ? 'For members only. "Open" creates a link that works once and sets a cookie for this address.' : 'Public: anyone who knows the address can use it.'}
    </p>
  </section>`;
}

function outputs({ outputs: all }: RunAnswer): MaybeHtml {
  const list = Object.entries(all ?? {});
  if (list.length === 0) return null;
  return html`<section aria-labelledby="outputs-title">
    <h2 id="outputs-title">Outputs</h2>
    ${table({
      caption: 'Stack outputs',
      columns: [{ title: 'Name' }, { title: 'Value' }],
      rows: list.map(([name, { sensitive, value }]) => [
        html`<code>${name}</code>`,
        sensitive
          ? html`<span class="quiet">secret, not shown</span>`
          : html`<code class="wrap">${valueText(value ?? null)}</code>`,
      ]),
    })}
  </section>`;
}

function inputs({ inputs: all }: RunAnswer): MaybeHtml {
  const list = Object.entries(all ?? {});
  if (list.length === 0) return null;
  return html`<section aria-labelledby="run-inputs-title">
    <h2 id="run-inputs-title">Inputs</h2>
    ${table({
      caption: 'Inputs of the run',
      columns: [{ title: 'Name' }, { title: 'Value' }],
      rows: list.map(([name, input]) => [html`<code>${name}</code>`, inputText(input)]),
    })}
  </section>`;
}

function inputText({ sensitive, set, value }: NonNullable<RunAnswer['inputs']>[string]): Html {
  if (!set) return html`<span class="quiet">not set</span>`;
  if (sensitive) return html`<span class="quiet">set, not shown</span>`;
  return value === undefined
    ? html`<span class="quiet">too large to show</span>`
    : html`<code class="wrap">${valueText(value)}</code>`;
}

/**
 * Returns the name of the run's author; null if the author was deleted or is hidden from the visitor. The page then
 * shows the id.
 */
async function readAuthorName(visit: Visit, run: RunAnswer): Promise<string | null> {
  const { created_by: by } = run;
  if (by === null || by === formatId('user', visit.signedIn.session.userId)) return null;
  const of = { organization_id: visit.may('organizations') ? run.organization_id : null };
  if (by.startsWith('key_')) {
    const key = visit.may('keys') ? await visit.find<KeyAnswer>(pathWith(`/v1/keys/${by}`, of)) : null;
    return key === null ? null : `the key ${key.name}`;
  }
  const user = visit.may('users') ? await visit.find<UserAnswer>(pathWith(`/v1/users/${by}`, of)) : null;
  return user?.email ?? null;
}

function author({ signedIn: { session } }: Visit, { created_by: by }: RunAnswer, name: string | null): MaybeHtml {
  if (by === null) return null;
  const who = by === formatId('user', session.userId) ? 'you' : (name ?? by);
  return html` <span class="quiet" title="${by}">by ${who}</span>`;
}

const viaWords = {
  api: 'with the API',
  portal: 'in the portal',
  cli: 'with the command line',
  expiry: 'because it expired',
  drift: 'by Headgate itself',
} as const;

function about(visit: Visit, { run, cluster, authorName, hasStack }: Seen): Html {
  const place = html`<a href="/portal/clusters/${run.cluster_id}" title="${run.cluster_id}"
    >${cluster?.name ?? run.cluster_id}</a
  >`;
  const expires = expiryText(run);
  const stack = hasStack ? html`<a href="/portal/stacks/${run.stack_id}">${run.stack}</a>` : `${run.stack} (deleted)`;
  return html`<section aria-labelledby="about-title">
    <h2 id="about-title">Details</h2>
    ${facts([
      { term: 'Stack', text: run.stack_version === null ? stack : html`${stack}, version ${run.stack_version}` },
      { term: 'Target', text: html`${run.node === null ? 'all nodes of ' : `node ${run.node} of `}${place}` },
      run.retry_of === null
        ? null
        : { term: 'Retry of', text: html`<a href="/portal/runs/${run.retry_of}">an earlier run</a>` },
      run.drift_check_of === null
        ? null
        : { term: 'Checks', text: html`<a href="${runPath({ id: run.drift_check_of })}">the applied run</a>` },
      {
        term: 'Requested',
        text: html`${moment(run.created_at)}${author(visit, run, authorName)}${run.created_via === null ? null : html` <span class="quiet">${viaWords[run.created_via]}</span>`}`,
      },
      { term: 'Started', text: moment(run.started_at, 'not yet') },
      { term: 'Ended', text: moment(run.ended_at, 'not yet') },
      expires === null ? null : { term: 'Expires', text: expires },
      run.plan === null || run.drift_check_of !== null
        ? null
        : { term: 'Plan', text: changesText({ operation: 'plan', ...run.plan }, run) },
      { term: 'Log', text: counted(run.log_lines, 'line') },
      { term: 'Id', text: html`<code>${run.id}</code>` },
    ])}
  </section>`;
}
