import { page } from '#edge/portal/frame/frame.ts';
import {
  badge,
  counted,
  empty,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  pathWith,
  queryOf,
  select,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import type { ClusterSummaryAnswer, HostAnswer, PageAnswer } from './answers.ts';
import { readOrganizationNames } from './organization-names.ts';
import { filterForm, moment, pageNumber, pager } from './widgets.ts';

/** Lists the organization's clusters, and the hosts that engines run on. */

const path = '/portal/clusters';
const pageSize = 50;

export const clusterPath = ({ id }: Pick<ClusterSummaryAnswer, 'id'>): string => `${path}/${id}`;

const notices: Readonly<Record<string, string>> = {
  deleted: 'The cluster is deleted: its nodes are released and its runs are ended. Its costs stay.',
};

export async function clustersPage(visit: Visit): Promise<Response> {
  const { context, get, may } = visit;
  const asked = queryOf(context, 'status');
  const chosen = { status: asked === 'archived' || asked === 'all' ? asked : 'active' };
  const query = { ...chosen, page: pageNumber(queryOf(context, 'page')), limit: pageSize };
  const [list, names, hosts] = await Promise.all([
    get<PageAnswer<ClusterSummaryAnswer>>(pathWith('/v1/clusters', query)),
    readOrganizationNames(visit),
    may('engines') ? get<{ readonly data: readonly HostAnswer[] }>('/v1/admin/hosts') : null,
  ]);
  const said = noticeOf(visit, notices);
  const statuses = [
    { value: 'active', label: 'In use' },
    { value: 'archived', label: 'Deleted' },
    { value: 'all', label: 'All' },
  ];
  const body = html`${said === undefined ? null : notice('good', said)}
    <p class="lead">Machines that stacks are applied to, and whose hours are counted while they are allocated.</p>
    ${filterForm(path, select('status', 'Show', statuses, chosen.status))}
    <div id="results">
      ${list.data.length === 0 ? nothing(visit, chosen.status) : clusterTable(list.data, names)}
      ${pager(path, chosen, list)}
    </div>
    ${hosts === null ? null : hostSection(hosts.data)}`;
  const actions = may('clusters') ? html`<a class="button primary" href="${path}/new">Make a cluster</a>` : null;
  return page(visit, { title: 'Clusters', actions, body });
}

function nothing({ may }: Visit, status: string): Html {
  if (status === 'archived') return empty('None was deleted', 'Deleted clusters stay here, with their costs.');
  return empty(
    'No clusters yet',
    may('clusters')
      ? html`<a href="${path}/new">Make one</a> of machines that you have: give it a name and say how SSH reaches its
          nodes, put the public key that it gets into their <code>authorized_keys</code>, and apply a stack.`
      : 'An administrator of the platform makes the clusters of an organization. Ask for one, and it stands here.',
  );
}

export function clusterState({ status, nodes_total: total, nodes_allocated: held }: ClusterSummaryAnswer): Html {
  if (status === 'archived') return badge('plain', 'deleted');
  if (total === 0) return badge('busy', 'no nodes');
  return held > 0 ? badge('good', 'in use') : badge('plain', 'idle');
}

function clusterTable(list: readonly ClusterSummaryAnswer[], names: ReadonlyMap<string, string>): Html {
  const isMany = new Set(list.map(({ organization_id: id }) => id)).size > 1;
  const organization = ({ organization_id: id }: ClusterSummaryAnswer): MaybeHtml[] =>
    isMany ? [names.get(id) ?? id] : [];
  return table({
    caption: 'All clusters',
    columns: [
      { title: 'Name' },
      ...(isMany ? [{ title: 'Organization' }] : []),
      { title: 'State' },
      { title: 'Nodes', isNumber: true },
      { title: 'Allocated', isNumber: true },
      { title: 'Web addresses under' },
      { title: 'Made' },
    ],
    rows: list.map((cluster) => [
      html`<a href="${clusterPath(cluster)}">${cluster.name}</a>`,
      ...organization(cluster),
      clusterState(cluster),
      String(cluster.nodes_total),
      String(cluster.nodes_allocated),
      cluster.public_domain ?? html`<span class="quiet">none</span>`,
      moment(cluster.created_at),
    ]),
  });
}

/** Lists the hosts of engines. Engine files define these hosts, and the cost report has their GPU-hours. */
function hostSection(hosts: readonly HostAnswer[]): MaybeHtml {
  const withGpus = hosts.filter(({ gpus, replicas }) => gpus.length > 0 || replicas.length > 0);
  if (withGpus.length === 0) return null;
  return html`<section aria-labelledby="hosts-title">
    <h2 id="hosts-title">GPU hosts of the models</h2>
    <p class="hint">
      These serve models and take no stacks. What their GPUs were held for is in the
      <a href="/portal/costs">costs</a>, under the name of each model.
    </p>
    ${table({
      caption: 'Hosts with their GPUs',
      columns: [{ title: 'Host' }, { title: 'State' }, { title: 'GPUs' }, { title: 'In use by' }],
      rows: withGpus.map((host) => [
        html`${host.name} ${badge('plain', 'models')}`,
        host.reachable
          ? badge('good', 'reachable')
          : html`${badge('bad', 'not reachable')} <span class="wrap quiet">${host.trouble}</span>`,
        html`${counted(host.gpus.length, 'GPU')}${profilesOf(host)}`,
        usersOf(host),
      ]),
    })}
  </section>`;
}

function profilesOf({ gpus }: HostAnswer): MaybeHtml {
  const profiles = [...new Set(gpus.flatMap(({ profile }) => profile ?? []))];
  return profiles.length === 0 ? null : html` <span class="quiet">${profiles.join(', ')}</span>`;
}

function usersOf({ gpus, replicas }: HostAnswer): MaybeHtml {
  const ofGpus = gpus.flatMap(({ used_by: user }) =>
    user === null ? [] : [user.engine ?? user.stranger ?? 'unknown'],
  );
  const users = [...new Set([...ofGpus, ...replicas.map(({ engine }) => engine)])];
  return users.length === 0 ? html`<span class="quiet">nobody</span>` : users.join(', ');
}
