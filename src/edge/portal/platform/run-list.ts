import type { ClusterSummaryAnswer } from '#edge/contract/clusters.ts';
import type { PageAnswer } from '#edge/contract/lists.ts';
import { type RunAnswer, runStatuses } from '#edge/contract/runs.ts';
import { page } from '#edge/portal/frame/frame.ts';
import {
  empty,
  field,
  filterForm,
  html,
  type Html,
  type MaybeHtml,
  notice,
  pathWith,
  queryOf,
  select,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { readClusters } from './cluster-choices.ts';
import { driftBadge, expiryText, isUnfinished, statusBadge, statusText } from './run-words.ts';
import { moment, pageNumber, pager, readRunnerProblem } from './widgets.ts';

/** Lists runs with their status. */

const statusChoices: readonly { readonly value: string; readonly label: string }[] = [
  { value: '', label: 'All' },
  { value: runStatuses.filter((status) => isUnfinished({ status })).join(','), label: 'pending or active' },
  ...runStatuses.map((value) => ({ value, label: statusText(value) })),
];

const kindChoices = [
  { value: '', label: 'Applies and destroys' },
  { value: 'true', label: 'Drift checks' },
];

const path = '/portal/runs';
const pageSize = 50;

export const runPath = ({ id }: Pick<RunAnswer, 'id'>): string => `${path}/${id}`;

type Names = ReadonlyMap<string, string>;

const named = ({ id, name, status }: ClusterSummaryAnswer): [string, string] => [
  id,
  status === 'archived' ? `${name} (deleted)` : name,
];

/** Returns the names of all clusters that can be chosen, archived clusters included, by id. */
async function clusterNames(visit: Visit): Promise<Names> {
  return new Map((await readClusters(visit, 'all')).map(named));
}

/** Adds the names of other clusters by id. There may be more clusters than the list of choices holds. */
async function withOthers(names: Names, { find }: Visit, ids: readonly string[]): Promise<Names> {
  const missing = [...new Set(ids)].filter((id) => id !== '' && !names.has(id));
  const others = await Promise.all(missing.map((id) => find<ClusterSummaryAnswer>(`/v1/clusters/${id}`)));
  return new Map([...names, ...others.flatMap((other) => (other === null ? [] : [named(other)]))]);
}

export async function runsPage(visit: Visit): Promise<Response> {
  const { context, get } = visit;
  const asked = (name: string): string => queryOf(context, name).trim();
  const chosen = {
    cluster_id: asked('cluster_id'),
    stack: asked('stack'),
    status: statusChoices.find(({ value }) => value === asked('status'))?.value ?? '',
    created_by: asked('created_by'),
    drift_checks: asked('drift_checks') === 'true' ? 'true' : '',
    from: asked('from'),
    to: asked('to'),
  };
  const query = { ...chosen, page: pageNumber(asked('page')), limit: pageSize };
  const [list, choices, problem] = await Promise.all([
    get<PageAnswer<RunAnswer>>(pathWith('/v1/runs', query)),
    clusterNames(visit),
    readRunnerProblem(visit),
  ]);
  const names = await withOthers(choices, visit, [...list.data.map(({ cluster_id: id }) => id), chosen.cluster_id]);
  const isBusy = list.data.some(isUnfinished);
  const body = html`${problem}
    ${filterForm(path, [
      select('cluster_id', 'Cluster', clusterChoices(names, chosen.cluster_id), chosen.cluster_id),
      field({ name: 'stack', label: 'Stack', value: chosen.stack, placeholder: 'stack name', maxLength: 100 }),
      select('status', 'Status', statusChoices, chosen.status),
      select('drift_checks', 'Kind', kindChoices, chosen.drift_checks),
      field({
        name: 'created_by',
        label: 'Author',
        value: chosen.created_by,
        placeholder: 'user_… or key_…',
        maxLength: 100,
      }),
      field({ name: 'from', label: 'From (UTC)', type: 'date', value: chosen.from }),
      field({ name: 'to', label: 'Before (UTC)', type: 'date', value: chosen.to }),
    ])}
    <div id="results">
      ${isBusy ? notice('plain', 'Some of these runs are pending or active. Reload the page to refresh their status.') : null}
      ${list.data.length === 0 ? nothing(Object.values(chosen).some((one) => one !== '')) : runTable(list.data, names)}
      ${pager(path, chosen, list)}
    </div>`;
  return page(visit, { title: 'Runs', body });
}

function clusterChoices(names: ReadonlyMap<string, string>, chosen: string) {
  const list = [...names].map(([value, label]) => ({ value, label }));
  const isThere = chosen === '' || names.has(chosen);
  return [{ value: '', label: 'All clusters' }, ...(isThere ? [] : [{ value: chosen, label: chosen }]), ...list];
}

function nothing(isNarrowed: boolean): Html {
  return isNarrowed
    ? empty('No matching runs', html`<a href="${path}">Show all runs</a>.`)
    : empty('No runs yet', html`Apply one of the <a href="/portal/stacks">stacks</a>.`);
}

const addressLink = (run: RunAnswer): MaybeHtml =>
  run.url !== null && run.status === 'APPLIED'
    ? html`<a href="${runPath(run)}#address">View</a>`
    : html`<span class="quiet">none</span>`;

const planText = ({ plan }: RunAnswer): MaybeHtml =>
  plan === null ? html`<span class="quiet">none</span>` : `+${plan.add} ~${plan.change} -${plan.remove}`;

export function runTable(runs: readonly RunAnswer[], names: ReadonlyMap<string, string>): Html {
  return table({
    caption: 'Runs, newest first',
    columns: [
      { title: 'Stack', isWide: true },
      { title: 'Cluster' },
      { title: 'Node' },
      { title: 'Status' },
      { title: 'Version' },
      { title: 'Plan' },
      { title: 'Web address' },
      { title: 'Requested' },
      { title: 'Ended' },
      { title: 'Expires' },
    ],
    rows: runs.map((run) => [
      html`<a href="${runPath(run)}">${run.operation === 'destroy' ? html`${run.stack} (destroy)` : run.stack}</a>`,
      html`<a href="/portal/clusters/${run.cluster_id}" title="${run.cluster_id}"
        >${names.get(run.cluster_id) ?? run.cluster_id}</a
      >`,
      run.node ?? html`<span class="quiet">all</span>`,
      html`${statusBadge(run)} ${driftBadge(run)}
      ${run.queue_position === null ? null : html`<span class="quiet">${run.queue_position} in queue</span>`}`,
      run.stack_version === null ? html`<span class="quiet">unknown</span>` : String(run.stack_version),
      planText(run),
      addressLink(run),
      moment(run.created_at),
      moment(run.ended_at, 'not yet'),
      expiryText(run) ?? html`<span class="quiet">none</span>`,
    ]),
  });
}
