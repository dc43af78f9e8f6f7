import type { ClusterAnswer, NodeAnswer, NodeEventResultAnswer } from '#edge/contract/clusters.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  beganWith,
  changesIn,
  field,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  numberOf,
  type Refusal,
  refused,
  RefusedError,
  renamed,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { clusterPath } from './cluster-list.ts';
import { clusterPage, momentField, readCluster } from './cluster-page.ts';
import { labelsField, labelsOf, labelsText } from './labels.ts';
import { confirmForm } from './widgets.ts';

/** Adds, changes, allocates, releases and removes nodes of a cluster, for platform administrators. */

const names = [
  'name',
  'address',
  'private_address',
  'ssh_port',
  'ssh_user',
  'host_key',
  'hardware_profile',
  'gpus',
  'labels',
] as const;
type Typed = Readonly<Record<(typeof names)[number], string>>;

const fresh: Typed = {
  name: '',
  address: '',
  private_address: '',
  ssh_port: '22',
  ssh_user: 'root',
  host_key: '',
  hardware_profile: '',
  gpus: '0',
  labels: '',
};

function typedIn(form: Form): Typed {
  return {
    name: form.text('name').trim(),
    address: form.text('address').trim(),
    private_address: form.text('private_address').trim(),
    ssh_port: form.text('ssh_port').trim(),
    ssh_user: form.text('ssh_user').trim(),
    host_key: form.text('host_key').trim(),
    hardware_profile: form.text('hardware_profile').trim(),
    gpus: form.text('gpus').trim(),
    labels: form.text('labels'),
  };
}

const orNull = (text: string): string | null => (text === '' ? null : text);

const toBody = (typed: Typed): Readonly<Record<string, unknown>> => ({
  ...typed,
  private_address: orNull(typed.private_address),
  host_key: orNull(typed.host_key),
  ssh_port: numberOf(typed.ssh_port) ?? typed.ssh_port,
  gpus: numberOf(typed.gpus) ?? 0,
  labels: labelsOf(typed.labels),
});

const namedOf = (body: Readonly<Record<string, unknown>>, chosen: readonly (keyof Typed)[] = names) =>
  Object.fromEntries(chosen.map((name) => [name, body[name]]));

function fields(typed: Typed, refusal: Refusal | null): Html {
  return html`${refused(refusal)}
    <div class="grid">
      ${field({ name: 'name', label: 'Name', value: typed.name, refusal, isRequired: true, maxLength: 63, placeholder: 'gpu-1' })}
      ${field({ name: 'hardware_profile', label: 'Hardware profile', value: typed.hardware_profile, refusal, isRequired: true, maxLength: 63, placeholder: 'h100-8x', hint: 'Your name for this kind of machine. Use the same name for identical machines; rate cards set prices per profile.' })}
      ${field({ name: 'gpus', label: 'GPUs', value: typed.gpus, refusal, inputMode: 'numeric', maxLength: 6 })}
    </div>
    <div class="grid">
      ${field({ name: 'address', label: 'Address', value: typed.address, refusal, isRequired: true, maxLength: 253, placeholder: '10.0.0.7', hint: 'Address for SSH.' })}
      ${field({ name: 'ssh_port', label: 'SSH port', value: typed.ssh_port, refusal, inputMode: 'numeric', maxLength: 6 })}
      ${field({ name: 'ssh_user', label: 'SSH user', value: typed.ssh_user, refusal, maxLength: 32 })}
    </div>
    ${field({ name: 'private_address', label: 'Private address', value: typed.private_address, refusal, maxLength: 253, hint: 'Address that other nodes use. If empty, they use the address above.' })}
    ${field({ name: 'host_key', label: 'Host key', value: typed.host_key, refusal, maxLength: 2000, placeholder: 'ecdsa-sha2-nistp256 AAAA…', hint: 'Content of /etc/ssh/ssh_host_ecdsa_key.pub on the node. Without an ECDSA key, use its RSA key, otherwise Ed25519. Without a host key, runs do not verify the machine.' })}
    ${labelsField(typed.labels, 'One key=value per line. They replace labels of the cluster that have the same key.', refusal)}`;
}

export async function newNodePage(visit: Visit, id: string, typed: Typed = fresh, refusal: Refusal | null = null) {
  const cluster = await readCluster(visit, id);
  const body = html`<form class="form" method="post" action="${clusterPath(cluster)}/nodes">
    ${formToken(visit)} ${fields(typed, refusal)}
    <p class="buttons"><button class="primary">Add node</button> <a href="${clusterPath(cluster)}">Cancel</a></p>
  </form>`;
  return page(visit, {
    title: `Add a node to ${cluster.name}`,
    body,
    status: refusal === null ? 200 : statusOf(refusal),
  });
}

export async function addNode(visit: Visit, id: string, form: Form): Promise<Response> {
  const typed = typedIn(form);
  const added = await visit.send<NodeAnswer>('POST', `/v1/clusters/${encodeURIComponent(id)}/nodes`, toBody(typed));
  if (!added.ok) return newNodePage(visit, id, typed, added.refusal);
  return visit.context.redirect(`/portal/clusters/${encodeURIComponent(id)}?notice=added`, 303);
}

interface Found {
  readonly cluster: ClusterAnswer;
  readonly node: NodeAnswer;
}

async function readNode(visit: Visit, id: string, nodeId: string): Promise<Found> {
  const cluster = await readCluster(visit, id);
  const node = cluster.nodes.find((one) => one.id === nodeId);
  if (node === undefined) {
    throw new RefusedError({
      status: 404,
      message: 'This cluster has no such node. Choose one on the page of the cluster.',
      problems: new Map(),
    });
  }
  return { cluster, node };
}

function editPageOf(visit: Visit, { cluster, node }: Found, form: Form | null, refusal: Refusal | null) {
  const typed = form === null ? textsOf(node) : typedIn(form);
  const back = clusterPath(cluster);
  const body = html`<form class="form" method="post" action="${back}/nodes/${node.id}">
    ${formToken(visit)} ${beganWith(namedOf(toBody(textsOf(node))), form)} ${fields(typed, refusal)}
    <p class="buttons"><button class="primary">Save</button> <a href="${back}">Cancel</a></p>
  </form>`;
  return page(visit, { title: `Edit ${node.name}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

const textsOf = (node: NodeAnswer): Typed => ({
  ...node,
  private_address: node.private_address ?? '',
  host_key: node.host_key ?? '',
  ssh_port: String(node.ssh_port),
  gpus: String(node.gpus),
  labels: labelsText(node.labels),
});

export async function editNodePage(visit: Visit, id: string, nodeId: string): Promise<Response> {
  const found = await readNode(visit, id, nodeId);
  return editPageOf(visit, found, null, null);
}

export async function changeNode(visit: Visit, id: string, nodeId: string, form: Form): Promise<Response> {
  const found = await readNode(visit, id, nodeId);
  const [before, typed] = [textsOf(found.node), typedIn(form)];
  // Sends only changed fields: the API rejects profile and GPUs of an allocated node even if they are unchanged.
  const others = names.filter((name) => typed[name] !== before[name]);
  const changes = changesIn(form, namedOf(toBody(typed), others));
  const path = `/v1/clusters/${found.cluster.id}/nodes/${nodeId}`;
  const changed = isEmpty(changes) ? null : await visit.send<NodeAnswer>('PATCH', path, changes);
  if (changed?.ok === false) return editPageOf(visit, found, form, changed.refusal);
  return visit.context.redirect(`${clusterPath(found.cluster)}?notice=saved`, 303);
}

export async function removeNodePage(visit: Visit, id: string, nodeId: string, refusal: Refusal | null = null) {
  const { cluster, node } = await readNode(visit, id, nodeId);
  const body = confirmForm(visit, {
    action: `${clusterPath(cluster)}/nodes/${node.id}/delete`,
    back: clusterPath(cluster),
    button: `Remove ${node.name}`,
    refusal,
    body: html`<p>
      The node <strong>${node.name}</strong> is removed from
      ${cluster.name}${node.status === 'allocated' ? ', and its metering ends now' : ''}. First destroy the stacks
      applied to this node, or forget their runs if the machine is lost. Resources of stacks for the whole cluster stay
      on the machine, and runs no longer reach it. Its costs stay in the reports.
    </p>`,
  });
  return page(visit, { title: `Remove ${node.name}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function removeNode(visit: Visit, id: string, nodeId: string): Promise<Response> {
  const gone = await visit.send('DELETE', `/v1/clusters/${encodeURIComponent(id)}/nodes/${encodeURIComponent(nodeId)}`);
  if (!gone.ok) return removeNodePage(visit, id, nodeId, gone.refusal);
  return visit.context.redirect(`/portal/clusters/${encodeURIComponent(id)}?notice=removed`, 303);
}

export interface NodeEvent {
  readonly kind: 'allocate' | 'release';
  readonly id: string;
  readonly nodeId: string;
  readonly nowMs: number;
}

export async function recordEvent(visit: Visit, { kind, id, nodeId, nowMs }: NodeEvent, form: Form): Promise<Response> {
  const at = form.text(momentField(nodeId)).trim();
  const path = `/v1/clusters/${encodeURIComponent(id)}/nodes/${encodeURIComponent(nodeId)}/${kind}`;
  const told = await visit.send<NodeEventResultAnswer>('POST', path, at === '' ? {} : { at });
  if (!told.ok)
    return clusterPage(
      visit,
      nowMs,
      id,
      renamed(told.refusal, (name) => (name === 'at' ? momentField(nodeId) : name)),
    );
  const said = told.body.outcome === 'repeated' ? 'repeated' : kind === 'allocate' ? 'allocated' : 'released';
  return visit.context.redirect(`/portal/clusters/${encodeURIComponent(id)}?notice=${said}`, 303);
}
