import type { ClusterSummaryAnswer } from '#edge/contract/clusters.ts';
import type { HostAnswer, HostListAnswer } from '#edge/contract/hosts.ts';
import type { PageAnswer } from '#edge/contract/lists.ts';
import { assets, page } from '#edge/portal/frame/frame.ts';
import {
  badge,
  counted,
  empty,
  filterForm,
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
import { readOrganizationNames } from './organization-names.ts';
import { moment, pageNumber, pager } from './widgets.ts';

/** Lists the organization's clusters, and the hosts that engines run on. */

const path = '/portal/clusters';
const pageSize = 50;

export const clusterPath = ({ id }: Pick<ClusterSummaryAnswer, 'id'>): string => `${path}/${id}`;

const notices: Readonly<Record<string, string>> = {
  archived: 'Cluster archived. Its nodes are released and its runs are stopped. Its costs stay in the reports.',
};

export async function clustersPage(visit: Visit): Promise<Response> {
  const { context, get, may } = visit;
  const asked = queryOf(context, 'status');
  const chosen = { status: asked === 'archived' || asked === 'all' ? asked : 'active' };
  const query = { ...chosen, page: pageNumber(queryOf(context, 'page')), limit: pageSize };
  const [list, names, hosts] = await Promise.all([
    get<PageAnswer<ClusterSummaryAnswer>>(pathWith('/v1/clusters', query)),
    readOrganizationNames(visit),
    may('engines') ? get<HostListAnswer>('/v1/admin/hosts') : null,
  ]);
  const said = noticeOf(visit, notices);
  const statuses = [
    { value: 'active', label: 'Active' },
    { value: 'archived', label: 'Archived' },
    { value: 'all', label: 'All' },
  ];
  const body = html`${said === undefined ? null : notice('good', said)}
    <p class="lead">Groups of machines to which you apply stacks. Headgate meters the hours of allocated machines.</p>
    ${filterForm(path, select('status', 'Status', statuses, chosen.status))}
    <div id="results">
      ${list.data.length === 0 ? nothing(visit, chosen.status) : clusterTable(list, names)} ${pager(path, chosen, list)}
    </div>
    ${hosts === null ? null : hostSection(hosts.data)}`;
  const actions = may('clusters') ? html`<a class="button primary" href="${path}/new">Create cluster</a>` : null;
  return page(visit, { title: 'Clusters', actions, body, script: assets.lists });
}

function nothing({ may }: Visit, status: string): Html {
  if (status === 'archived')
    return empty('No archived clusters', 'Archived clusters stay listed here, with their costs.');
  return empty(
    'No clusters yet',
    may('clusters')
      ? html`<a href="${path}/new">Create a cluster</a> from your machines: add its nodes, put its public key into their
          <code>authorized_keys</code>, and apply a stack.`
      : 'Ask a platform administrator to create one for your organization.',
  );
}

export function clusterState({ status, nodes_total: total, nodes_allocated: held }: ClusterSummaryAnswer): Html {
  if (status === 'archived') return badge('plain', 'deleted');
  if (total === 0) return badge('busy', 'no nodes');
  return held > 0 ? badge('good', 'in use') : badge('plain', 'idle');
}

function clusterTable(
  { data: list, pagination }: PageAnswer<ClusterSummaryAnswer>,
  names: ReadonlyMap<string, string>,
): Html {
  const isMany = new Set(list.map(({ organization_id: id }) => id)).size > 1;
  const organization = ({ organization_id: id }: ClusterSummaryAnswer): MaybeHtml[] =>
    isMany ? [names.get(id) ?? id] : [];
  return table({
    caption: 'Clusters',
    list: pagination.pages > 1 ? 'part' : 'whole',
    columns: [
      { title: 'Name' },
      ...(isMany ? [{ title: 'Organization' }] : []),
      { title: 'State' },
      { title: 'Nodes', isNumber: true },
      { title: 'Allocated', isNumber: true },
      { title: 'Public domain' },
      { title: 'Created' },
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
    <h2 id="hosts-title">GPU hosts for models</h2>
    <p class="hint">
      These hosts serve models; you cannot apply stacks to them. Their GPU-hours are in the
      <a href="/portal/costs">costs</a>, by model.
    </p>
    ${table({
      caption: 'Hosts with their GPUs',
      columns: [{ title: 'Host' }, { title: 'State' }, { title: 'GPUs' }, { title: 'Used by' }],
      rows: withGpus.map((host) => [
        html`${host.name} ${badge('plain', 'models')}`,
        host.reachable
          ? badge('good', 'reachable')
          : html`${badge('bad', 'unreachable')} <span class="wrap quiet">${host.trouble}</span>`,
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
  return users.length === 0 ? html`<span class="quiet">none</span>` : users.join(', ');
}
