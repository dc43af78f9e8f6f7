import type { AllocationHistoryAnswer, ClusterAnswer } from '#edge/contract/clusters.ts';
import type { PageAnswer } from '#edge/contract/lists.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  badge,
  beganWith,
  changesIn,
  checkbox,
  empty,
  field,
  type FieldOptions,
  type Form,
  formToken,
  html,
  type Html,
  notice,
  noticeOf,
  pathWith,
  queryOf,
  type Refusal,
  refused,
  table,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { clusterPath } from './cluster-list.ts';
import { readCluster } from './cluster-page.ts';
import { moment, pageNumber, pager } from './widgets.ts';

/** Allocations of a cluster's nodes, with what was amended. Platform administrators amend and void them. */

type Allocation = AllocationHistoryAnswer;
type Times = Pick<Allocation, 'allocated_at' | 'released_at' | 'estimated'>;

const notices: Readonly<Record<string, string>> = {
  amended: 'Allocation amended. Reports show the new times.',
  voided: 'Allocation voided. Reports no longer have its hours.',
};

/** A rejected form, shown again in its row. */
interface Rejected {
  readonly nodeId: string;
  readonly generation: string;
  readonly form: Form;
  readonly refusal: Refusal;
}

export async function allocationsPage(visit: Visit, id: string, rejected: Rejected | null = null): Promise<Response> {
  const cluster = await readCluster(visit, id);
  const path = `${clusterPath(cluster)}/allocations`;
  const query = { page: pageNumber(queryOf(visit.context, 'page')), limit: '20' };
  const found = await visit.get<PageAnswer<Allocation>>(pathWith(`/v1/clusters/${cluster.id}/allocations`, query));
  const said = noticeOf(visit, notices);
  const list =
    found.data.length === 0
      ? empty('No allocations', 'Allocate a node on the page of the cluster to start its hours.')
      : html`${allocationTable(found.data)} ${pager(path, {}, found)}`;
  const refusal = rejected?.refusal ?? null;
  const body = html`${said === undefined ? null : notice('good', said)} ${refused(refusal)}
    <p><a href="${clusterPath(cluster)}">${cluster.name}</a></p>
    ${list} ${visit.may('clusters') ? found.data.map((one) => correction(visit, cluster, one, rejected)) : null}`;
  const status = refusal === null ? 200 : statusOf(refusal);
  return page(visit, { title: `Allocations of ${cluster.name}`, body, status });
}

const nameOf = ({ node_name: name, node_id: id }: Allocation): string => name ?? id;

function allocationTable(allocations: readonly Allocation[]): Html {
  return table({
    caption: 'Allocations',
    columns: [
      { title: 'Node', isWide: true },
      { title: 'Allocation', isNumber: true },
      { title: 'Start' },
      { title: 'End' },
      { title: 'Amendments', isWide: true },
    ],
    rows: allocations.map((one) => [
      html`${nameOf(one)} ${one.status === 'voided' ? badge('plain', 'voided') : null}`,
      String(one.generation),
      moment(one.allocated_at, 'not reported'),
      html`${moment(one.released_at, 'allocated')} ${one.estimated ? badge('busy', 'estimated') : null}`,
      html`${one.amendments.map(amendmentText)}`,
    ]),
  });
}

const spanText = ({ allocated_at: from, released_at: to }: Times): Html =>
  html`${moment(from, 'not reported')} to ${moment(to, 'now')}`;

const amendmentText = ({ amended_at: at, reason, before, after }: Allocation['amendments'][number]): Html =>
  html`<div>
    ${moment(at)}:
    ${after === null ? html`voided ${spanText(before)}` : html`${spanText(before)} became ${spanText(after)}`}
    <span class="quiet">${reason}</span>
  </div>`;

/** Body of the amendment that changes nothing. */
const timesOf = ({ allocated_at: from, released_at: to }: Times) => ({ allocated_at: from, released_at: to });

/** Form of one allocation in a collapsed section. */
function correction(visit: Visit, cluster: ClusterAnswer, one: Allocation, rejected: Rejected | null): Html | null {
  if (one.status === 'voided') return null;
  const isRejected = rejected?.nodeId === one.node_id && rejected.generation === String(one.generation);
  const [form, refusal] = isRejected ? [rejected.form, rejected.refusal] : [null, null];
  const action = `${clusterPath(cluster)}/nodes/${one.node_id}/allocations/${one.generation}`;
  const input = (of: Pick<FieldOptions, 'name' | 'label' | 'value' | 'hint' | 'maxLength'>): Html =>
    field({
      ...of,
      id: `${of.name}-${one.node_id}-${one.generation}`,
      value: form?.text(of.name) ?? of.value,
      refusal,
    });
  return html`<details class="fold" ${isRejected ? html`open` : null}>
    <summary>${nameOf(one)}, allocation ${String(one.generation)}: amend, void</summary>
    <form class="form" method="post" action="${action}">
      ${formToken(visit)} ${beganWith(timesOf(one), form)}
      ${
        one.allocated_at === null
          ? null
          : html`${input({ name: 'allocated_at', label: 'Start', value: one.allocated_at, hint: 'Correct time, such as 2026-11-21T09:30:00Z.', maxLength: 40 })}
            ${input({ name: 'released_at', label: 'End', value: one.released_at ?? '', hint: 'If empty, the node is still allocated.', maxLength: 40 })}`
      }
      ${input({ name: 'reason', label: 'Reason', value: '', hint: 'Shown in this list and in the audit log.', maxLength: 1000 })}
      ${checkbox(retroactiveField(one.node_id, one.generation), 'Allow changes before this month', form?.has(retroactiveField(one.node_id, one.generation)) ?? false, 'This changes reports that may already have been read.')}
      <p class="buttons">
        ${one.allocated_at === null ? null : html`<button class="primary" name="change" value="amend">Amend</button>`}
        <button class="danger" name="change" value="void">Void</button>
      </p>
    </form>
  </details>`;
}

const retroactiveField = (nodeId: string, generation: number | string): string => `retroactive-${nodeId}-${generation}`;

export interface AllocationRef {
  readonly id: string;
  readonly nodeId: string;
  readonly generation: string;
}

export async function changeAllocation(visit: Visit, ref: AllocationRef, form: Form): Promise<Response> {
  const { id, nodeId, generation } = ref;
  const isVoid = form.text('change') === 'void';
  const typed = {
    allocated_at: form.text('allocated_at').trim(),
    released_at: form.text('released_at').trim() || null,
  };
  const body = {
    ...(isVoid ? {} : changesIn(form, typed)),
    reason: form.text('reason'),
    retroactive: form.has(retroactiveField(nodeId, generation)),
  };
  const [cluster, node, number] = [id, nodeId, generation].map(encodeURIComponent);
  const path = `/v1/clusters/${cluster}/nodes/${node}/allocations/${number}/${isVoid ? 'void' : 'amend'}`;
  const changed = await visit.send<Allocation>('POST', path, body);
  if (!changed.ok) return allocationsPage(visit, id, { nodeId, generation, form, refusal: changed.refusal });
  return visit.context.redirect(`/portal/clusters/${cluster}/allocations?notice=${isVoid ? 'voided' : 'amended'}`, 303);
}
