import type { ClusterAnswer } from '#edge/contract/clusters.ts';
import type { PageAnswer } from '#edge/contract/lists.ts';
import type { RunAnswer } from '#edge/contract/runs.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  area,
  beganWith,
  changesIn,
  count,
  counted,
  empty,
  field,
  type Form,
  formToken,
  html,
  type Html,
  isEmpty,
  type MaybeHtml,
  problemOf,
  radios,
  type Refusal,
  refused,
  renamed,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { clusterPath } from './cluster-list.ts';
import { readCluster } from './cluster-page.ts';
import { labelsField, labelsOf, labelsText } from './labels.ts';
import { readOrganizations } from './organization-names.ts';
import { chooser, confirmForm } from './widgets.ts';

/** Creates, changes and archives clusters, for platform administrators. */

const path = '/portal/clusters';

interface Typed {
  readonly name: string;
  readonly organization: string;
  readonly domain: string;
  readonly access: string;
  readonly labels: string;
}

const typedIn = (form: Form): Typed => ({
  name: form.text('name').trim(),
  organization: form.text('organization_id'),
  domain: form.text('public_domain').trim(),
  access: form.text('access'),
  labels: form.text('labels'),
});

const toBody = ({ name, organization, domain, access, labels }: Typed) => ({
  name,
  organization_id: organization,
  public_domain: domain === '' ? null : domain,
  access,
  labels: labelsOf(labels),
});

const accesses = [
  { value: 'public', label: 'Everyone' },
  { value: 'members', label: 'Members of the organization' },
];

async function fields(visit: Visit, typed: Typed, refusal: Refusal | null, hint: MaybeHtml): Promise<Html> {
  const organizations = (await readOrganizations(visit)).filter(({ status }) => status !== 'closed');
  const listed = organizations.map(({ id, name }) => ({ value: id, label: name }));
  const isListed = typed.organization === '' || listed.some(({ value }) => value === typed.organization);
  const own = isListed ? [] : [{ value: typed.organization, label: typed.organization }];
  return html`${refused(refusal)}
  ${field({ name: 'name', label: 'Name', value: typed.name, refusal, isRequired: true, maxLength: 63, hint: 'Part of web addresses. Use a-z, 0-9 and "-".' })}
  ${chooser({ name: 'organization_id', label: 'Organization', options: [...own, ...listed], chosen: typed.organization, hint, problem: problemOf(refusal, 'organization_id', 'The organization') })}
  ${field({ name: 'public_domain', label: 'Public domain', value: typed.domain, refusal, placeholder: 'apps.example.com', maxLength: 200, hint: 'Runs get web addresses as subdomains of this domain. If empty, runs get none.' })}
  ${radios({ name: 'access', legend: 'Web access', choices: accesses, chosen: typed.access, hint: 'A run can restrict access further, but not extend it.' })}
  ${labelsField(typed.labels, 'One key=value per line. Costs can be grouped by labels. Nodes have the labels of their cluster.', refusal)}`;
}

function requireRight({ may }: Visit): Html | null {
  return may('clusters') ? null : empty('Only platform administrators can create or edit clusters', 'Ask one of them.');
}

export async function newClusterPage(visit: Visit, typed: Typed | null = null, refusal: Refusal | null = null) {
  const title = 'Create cluster';
  const refusedBody = requireRight(visit);
  if (refusedBody !== null) return page(visit, { title, body: refusedBody, status: 403 });
  const shown = typed ?? { name: '', organization: visit.organizationId, domain: '', access: 'public', labels: '' };
  const body = html`<form class="form" method="post" action="${path}">
    ${formToken(visit)}
    ${await fields(visit, shown, refusal, 'Its members can see the cluster, and its administrators can apply stacks to it.')}
    ${area({ name: 'private_key', label: 'Private key for nodes', value: '', refusal, hint: 'If empty, Headgate creates a key and shows its public part. The private key is stored encrypted and never shown.' })}
    <p class="buttons"><button class="primary">Create cluster</button> <a href="${path}">Cancel</a></p>
  </form>`;
  return page(visit, { title, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function createCluster(visit: Visit, form: Form): Promise<Response> {
  const typed = typedIn(form);
  const key = form.text('private_key').replaceAll('\r\n', '\n').trim();
  const identity = key === '' ? {} : { access_identity: { private_key: `${key}\n` } };
  const made = await visit.send<ClusterAnswer>('POST', '/v1/clusters', { ...toBody(typed), ...identity });
  if (!made.ok)
    return newClusterPage(
      visit,
      typed,
      renamed(made.refusal, (name) => name.replace(/^access_identity\./, '')),
    );
  return visit.context.redirect(`${clusterPath(made.body)}?notice=made`, 303);
}

const textsOf = ({
  name,
  organization_id: organization,
  public_domain: domain,
  access,
  labels,
}: ClusterAnswer): Typed => ({
  name,
  organization,
  domain: domain ?? '',
  access,
  labels: labelsText(labels),
});

/** A form that the API rejected. */
interface Refused {
  readonly form: Form;
  readonly refusal: Refusal;
}

async function editPageOf(visit: Visit, cluster: ClusterAnswer, refused: Refused | null): Promise<Response> {
  const { form = null, refusal = null } = refused ?? {};
  const typed = form === null ? textsOf(cluster) : typedIn(form);
  const hint = 'If you move the cluster, its runs move too. Allocated nodes are then metered for the new organization.';
  const body = html`<form class="form" method="post" action="${clusterPath(cluster)}">
    ${formToken(visit)} ${beganWith(toBody(textsOf(cluster)), form)} ${await fields(visit, typed, refusal, hint)}
    <p class="buttons"><button class="primary">Save</button> <a href="${clusterPath(cluster)}">Cancel</a></p>
  </form>`;
  return page(visit, { title: `Edit ${cluster.name}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function editClusterPage(visit: Visit, id: string): Promise<Response> {
  const cluster = await readCluster(visit, id);
  const refusedBody = requireRight(visit);
  if (refusedBody !== null) return page(visit, { title: cluster.name, body: refusedBody, status: 403 });
  return editPageOf(visit, cluster, null);
}

export async function changeCluster(visit: Visit, id: string, form: Form): Promise<Response> {
  const cluster = await readCluster(visit, id);
  const changes = changesIn(form, toBody(typedIn(form)));
  const path = `/v1/clusters/${cluster.id}`;
  const changed = isEmpty(changes) ? null : await visit.send<ClusterAnswer>('PATCH', path, changes);
  if (changed?.ok === false) return editPageOf(visit, cluster, { form, refusal: changed.refusal });
  return visit.context.redirect(`${clusterPath(cluster)}?notice=saved`, 303);
}

export async function deleteClusterPage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const cluster = await readCluster(visit, id);
  const applied = await visit.get<PageAnswer<RunAnswer>>(`/v1/runs?cluster_id=${cluster.id}&status=APPLIED&limit=100`);
  const { total } = applied.pagination;
  const web = applied.data.filter(({ url }) => url !== null).length;
  const body = confirmForm(visit, {
    action: `${clusterPath(cluster)}/delete`,
    back: clusterPath(cluster),
    button: `Archive ${cluster.name}`,
    refusal,
    body: html`<p>
        The cluster <strong>${cluster.name}</strong> is archived permanently:
        ${counted(cluster.nodes_allocated, 'allocated node')} of ${cluster.nodes_total}
        ${cluster.nodes_allocated === 1 ? 'is' : 'are'} released, their metering ends now, pending and active runs are
        stopped, and its SSH key is no longer used.
      </p>
      <p>
        ${total === 0 ? 'No stacks are applied to it.' : html`<strong>${counted(total, 'stack')} ${total === 1 ? 'is' : 'are'} applied to it.</strong> ${total === 1 ? 'Its' : 'Their'} resources stay on the nodes, and Headgate can no longer destroy them${web === 0 ? '' : `; ${web === 1 ? 'one web address' : `${count(web)} web addresses`} ${web === 1 ? 'stops' : 'stop'} immediately`}.`}
      </p>
      <p>Its costs stay in the reports.</p>`,
  });
  return page(visit, { title: `Archive ${cluster.name}`, body, status: refusal === null ? 200 : statusOf(refusal) });
}

export async function deleteCluster(visit: Visit, id: string): Promise<Response> {
  const gone = await visit.send('DELETE', `/v1/clusters/${encodeURIComponent(id)}`);
  return gone.ok ? visit.context.redirect(`${path}?notice=archived`, 303) : deleteClusterPage(visit, id, gone.refusal);
}

export async function rotatePage(visit: Visit, id: string, refusal: Refusal | null = null): Promise<Response> {
  const cluster = await readCluster(visit, id);
  const body = confirmForm(visit, {
    action: `${clusterPath(cluster)}/rotate`,
    back: clusterPath(cluster),
    button: 'Rotate key',
    refusal,
    body: html`<p>
      <strong>Runs on ${cluster.name} use the new key immediately.</strong> Until you add its public key to
      <code>authorized_keys</code> on every node, runs cannot reach the nodes, and web addresses over SSH do not work.
    </p>`,
  });
  return page(visit, {
    title: `Rotate the key of ${cluster.name}`,
    body,
    status: refusal === null ? 200 : statusOf(refusal),
  });
}

export async function rotateKey(visit: Visit, id: string): Promise<Response> {
  const done = await visit.send<ClusterAnswer>(
    'POST',
    `/v1/clusters/${encodeURIComponent(id)}/access-identity/rotate`,
    {},
  );
  if (!done.ok) return rotatePage(visit, id, done.refusal);
  return visit.context.redirect(`${clusterPath(done.body)}?notice=rotated`, 303);
}
