import type { ClusterAnswer, NodeAnswer } from '#edge/contract/clusters.ts';
import type { CostReportAnswer } from '#edge/contract/costs.ts';
import type { PageAnswer } from '#edge/contract/lists.ts';
import type { RunAnswer } from '#edge/contract/runs.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  copyable,
  empty,
  field,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  notice,
  noticeOf,
  type Refusal,
  refused,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { clusterPath, clusterState } from './cluster-list.ts';
import { amountsText } from './amount-text.ts';
import { labelBadges } from './labels.ts';
import { readOrganizationNames } from './organization-names.ts';
import { runPath, runTable } from './run-list.ts';
import { facts, hoursText, moment } from './widgets.ts';

/** One cluster: its nodes, its runs and its costs. */

const runsShown = 10;

const notices: Readonly<Record<string, string>> = {
  made: 'Cluster created. Add the public key below to authorized_keys on its nodes; then you can apply a stack.',
  saved: 'Changes saved.',
  allocated: 'Node allocated. Metering has started.',
  released: 'Node released. Metering has ended.',
  repeated: 'This event was already recorded. Nothing was changed.',
  added: 'Node added. Metering starts once the node is allocated.',
  removed: 'Node removed.',
  rotated: 'Key rotated. Add the new public key to authorized_keys on every node, and remove the old one.',
};

export const readCluster = ({ get }: Visit, id: string): Promise<ClusterAnswer> =>
  get<ClusterAnswer>(`/v1/clusters/${encodeURIComponent(id)}`);

interface Spent {
  readonly amounts: string;
  readonly nodeHours: number;
  readonly gpuHours: number;
}

async function readSpent(
  { get, may }: Visit,
  { id, organization_id: org }: ClusterAnswer,
  nowMs: number,
): Promise<Spent | null> {
  if (!may('costs.read')) return null;
  const month = new Date(nowMs).toISOString().slice(0, 'YYYY-MM'.length);
  const report = await get<CostReportAnswer>(`/v1/billing/costs?month=${month}&organization_id=${org}`);
  const own = report.organizations.flatMap(({ clusters }) => clusters).filter((cluster) => cluster.id === id);
  return {
    amounts: amountsText(own.flatMap(({ amounts }) => amounts)),
    nodeHours: own.reduce((sum, { node_hours: hours }) => sum + hours, 0),
    gpuHours: own.reduce((sum, { gpu_hours: hours }) => sum + hours, 0),
  };
}

export async function clusterPage(
  visit: Visit,
  nowMs: number,
  id: string,
  refusal: Refusal | null = null,
): Promise<Response> {
  const cluster = await readCluster(visit, id);
  const [runs, applied, names, spent] = await Promise.all([
    visit.get<PageAnswer<RunAnswer>>(`/v1/runs?cluster_id=${cluster.id}&limit=${runsShown}`),
    visit.get<PageAnswer<RunAnswer>>(`/v1/runs?cluster_id=${cluster.id}&status=APPLIED&limit=100`),
    readOrganizationNames(visit),
    readSpent(visit, cluster, nowMs),
  ]);
  const path = clusterPath(cluster);
  const isOpen = cluster.status === 'active';
  const operates = isOpen && visit.may('clusters');
  const said = noticeOf(visit, notices);
  const actions = html`${isOpen && visit.may('runs') ? html`<a class="button primary" href="/portal/stacks">Apply a stack</a>` : null}
  ${operates ? html`<a class="button" href="${path}/edit">Edit</a> <a class="button danger" href="${path}/delete">Archive</a>` : null}`;
  const body = html`${said === undefined ? null : notice('good', said)} ${refused(refusal)}
    ${about(cluster, names, spent)} ${nodeSection(visit, cluster, operates, refusal)}
    ${isOpen ? keySection(cluster, operates) : null} ${addresses(applied.data)}
    <section aria-labelledby="runs-title">
      <div class="heading">
        <h2 id="runs-title">Recent runs</h2>
        <p class="actions"><a href="/portal/runs?cluster_id=${cluster.id}">All runs</a></p>
      </div>
      ${runs.data.length === 0 ? empty('No runs yet', 'Apply a stack to see its run here.') : runTable(runs.data, new Map([[cluster.id, cluster.name]]))}
    </section>`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: cluster.name, actions, body, status });
}

function about(cluster: ClusterAnswer, names: ReadonlyMap<string, string>, spent: Spent | null): Html {
  const { organization_id: org } = cluster;
  return facts([
    { term: 'State', text: clusterState(cluster) },
    names.size === 0 ? null : { term: 'Organization', text: names.get(org) ?? org },
    {
      term: 'Web addresses',
      text:
        cluster.public_domain === null
          ? 'none (no public domain)'
          : html`under <code>${cluster.public_domain}</code>, for
              ${cluster.access === 'members' ? 'members' : 'everyone'}`,
    },
    spent === null
      ? null
      : {
          term: 'This month',
          text: html`<a href="/portal/costs">${spent.amounts}</a>
            <span class="quiet"
              >${hoursText(spent.nodeHours)} of nodes, ${hoursText(spent.gpuHours)} of GPUs, months in UTC</span
            >`,
        },
    Object.keys(cluster.labels).length === 0 ? null : { term: 'Labels', text: labelBadges(cluster.labels) },
    { term: 'Created', text: moment(cluster.created_at) },
    cluster.archived_at === null ? null : { term: 'Archived', text: moment(cluster.archived_at) },
    { term: 'Id', text: html`<code>${cluster.id}</code>` },
  ]);
}

function nodeState({ status, allocation }: NodeAnswer): Html {
  if (status === 'allocated')
    return html`${badge('good', 'allocated')} since ${moment(allocation?.allocated_at ?? null)}`;
  if (status === 'registered') return badge('plain', 'never allocated');
  const concluded = allocation?.estimated === true ? badge('busy', 'estimated: no heartbeat') : null;
  return html`${badge('plain', 'released')} ${moment(allocation?.released_at ?? null)} ${concluded}`;
}

function nodeSection(visit: Visit, cluster: ClusterAnswer, operates: boolean, refusal: Refusal | null): Html {
  const path = clusterPath(cluster);
  const add = operates ? html`<a class="button" href="${path}/nodes/new">Add a node</a>` : null;
  const none = operates
    ? html`<a href="${path}/nodes/new">Add one</a> to apply stacks.`
    : 'Ask a platform administrator to add one.';
  return html`<section aria-labelledby="nodes-title">
    <div class="heading">
      <h2 id="nodes-title">Nodes</h2>
      <p class="actions"><a href="${path}/allocations">Allocations</a> ${add}</p>
    </div>
    ${cluster.nodes.length === 0 ? empty('No nodes yet', none) : nodeTable(cluster)}
    ${operates ? cluster.nodes.map((node) => nodeChanges(visit, cluster, node, refusal)) : null}
  </section>`;
}

function nodeTable({ nodes }: ClusterAnswer): Html {
  return table({
    caption: 'Cluster nodes',
    columns: [
      { title: 'Name', isWide: true },
      { title: 'Profile' },
      { title: 'GPUs', isNumber: true },
      { title: 'Allocation' },
      { title: 'Last seen' },
      { title: 'SSH address', isWide: true },
    ],
    rows: nodes.map((node) => [
      html`${node.name} ${labelBadges(node.labels)}`,
      html`${node.hardware_profile} ${node.priced ? null : badge('busy', 'no rate card')}`,
      String(node.gpus),
      nodeState(node),
      moment(node.last_seen_at),
      html`<code>${node.ssh_user}@${node.address}:${node.ssh_port}</code>
        ${node.host_key === null ? badge('busy', 'no host key') : null}`,
    ]),
  });
}

/** Returns the name of a node's time field. Each node has its own form on the page. */
export const momentField = (nodeId: string): string => `at-${nodeId}`;

/** Actions of one node in a collapsed section, with their own forms. */
function nodeChanges(visit: Visit, cluster: ClusterAnswer, node: NodeAnswer, refusal: Refusal | null): Html {
  const path = `${clusterPath(cluster)}/nodes/${node.id}`;
  const isHeld = node.status === 'allocated';
  const kind = isHeld ? 'release' : 'allocate';
  return html`<details class="fold" ${refusal?.problems.has(momentField(node.id)) === true ? html`open` : null}>
    <summary>${node.name}: ${isHeld ? 'release' : 'allocate'}, edit, remove</summary>
    <form class="form" method="post" action="${path}/${kind}">
      ${formToken(visit)}
      ${field({ name: momentField(node.id), label: isHeld ? 'Release time' : 'Allocation time', value: '', placeholder: '2026-11-21T09:30:00Z', maxLength: 40, hint: 'If empty, now.', refusal })}
      <p class="buttons">
        <button class="${isHeld ? 'danger' : 'primary'}">${isHeld ? 'Release node' : 'Allocate node'}</button>
        <a href="${path}/edit">Edit</a> <a href="${path}/delete">Remove</a>
      </p>
    </form>
  </details>`;
}

function keySection({ id, access_identity: key }: ClusterAnswer, operates: boolean): Html {
  return html`<section aria-labelledby="key-title">
    <div class="heading">
      <h2 id="key-title">SSH key</h2>
      ${operates ? html`<p class="actions"><a class="button" href="/portal/clusters/${id}/rotate">Rotate key</a></p>` : null}
    </div>
    ${key.encrypted_with === null ? notice('bad', 'The private key of this cluster is lost, so runs cannot reach its nodes. Rotate the key.') : null}
    <p class="hint">
      Runs log in to the nodes with this key. Add this line to <code>~/.ssh/authorized_keys</code> of the SSH user on
      every node.
    </p>
    ${copyable('public-key', key.public_key)}
    <p class="quiet prose">
      ${key.fingerprint}, ${key.origin === 'given' ? 'provided' : 'created by Headgate'} ${moment(key.changed_at)}
    </p>
  </section>`;
}

function addresses(applied: readonly RunAnswer[]): MaybeHtml {
  const open = applied.filter(({ url }) => url !== null);
  if (open.length === 0) return null;
  return html`<section aria-labelledby="addresses-title">
    <h2 id="addresses-title">Web addresses</h2>
    ${table({
      caption: 'Cluster web addresses',
      columns: [{ title: 'Stack' }, { title: 'Address' }, { title: 'Access' }],
      rows: open.map((run) => [
        html`<a href="${runPath(run)}#address">${run.stack}</a>`,
        html`<code>${run.url}</code>`,
        run.access === 'members' ? 'members' : 'everyone',
      ]),
    })}
  </section>`;
}
