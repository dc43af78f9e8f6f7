import type { ClusterAnswer, ClusterSummaryAnswer, NodeAnswer } from '#edge/contract/clusters.ts';
import type { RunAnswer } from '#edge/contract/runs.ts';
import type { StackAnswer } from '#edge/contract/stacks.ts';
import { page, statusOf } from '#edge/portal/frame/frame.ts';
import {
  empty,
  filterForm,
  type Form,
  formToken,
  html,
  type Html,
  type MaybeHtml,
  problemOf,
  queryOf,
  radios,
  type Refusal,
  refused,
  type Visit,
} from '#edge/portal/ui/ui.ts';
import { readClusters } from './cluster-choices.ts';
import { defaultTexts, inputFields, inputsOf, type Typed, typedTexts } from './input-fields.ts';
import { lifeOf, lives } from './run-words.ts';
import { stackPath } from './stack-list.ts';
import { readStack } from './stack-page.ts';
import { chooser, onceField, onceHeader, type Option, readRunnerProblem } from './widgets.ts';

/** Applies a stack to a cluster, with inputs. */

interface Wanted {
  /** Number of the version of the stack; empty for the newest one. */
  readonly version: string;
  readonly cluster: string;
  /** Empty for the whole cluster. */
  readonly node: string;
  readonly access: string;
  /** `confirm`, `plan`, or empty to apply at once. */
  readonly mode: string;
  /** `never`, or seconds. */
  readonly life: string;
  /** `off`, or empty for regular drift checks. */
  readonly drift: string;
  readonly inputs: Typed;
}

export async function applyPage(visit: Visit, name: string): Promise<Response> {
  const version = queryOf(visit.context, 'version');
  const stack = await readStack(visit, name, version);
  const cluster = queryOf(visit.context, 'cluster');
  return applyPageOf(
    visit,
    stack,
    { version, cluster, node: '', access: '', mode: '', life: 'never', drift: '', inputs: defaultTexts(stack.inputs) },
    null,
  );
}

async function applyPageOf(
  visit: Visit,
  stack: StackAnswer,
  wanted: Wanted,
  refusal: Refusal | null,
): Promise<Response> {
  const [clusters, problem] = await Promise.all([readClusters(visit), readRunnerProblem(visit)]);
  const asked = wanted.cluster === '' ? (clusters.length === 1 ? clusters[0]?.id : undefined) : wanted.cluster;
  const cluster =
    asked === undefined ? null : await visit.get<ClusterAnswer>(`/v1/clusters/${encodeURIComponent(asked)}`);
  const title = `Apply ${stack.title}${wanted.version === '' ? '' : `, version ${wanted.version}`}`;
  const status = refusal === null ? 200 : statusOf(refusal);
  if (clusters.length === 0 && cluster === null) return page(visit, { title, body: noCluster(visit), status });
  const place = cluster === null ? chooseFirst : cluster.nodes.length === 0 ? noNodes(visit, cluster) : null;
  const body = html`${problem} ${clusters.length > 1 ? clusterForm(stack, clusters, cluster, wanted.version) : null}
    <div id="results">
      ${cluster === null || place !== null ? place : form(visit, { stack, cluster, wanted, refusal })}
    </div>`;
  return page(visit, { title, body, status });
}

function noCluster({ may }: Visit): Html {
  return empty(
    'No clusters yet',
    may('clusters')
      ? html`<a href="/portal/clusters/new">Create a cluster</a> from your machines first.`
      : 'Ask a platform administrator to create a cluster for your organization.',
  );
}

const chooseFirst = empty('No cluster chosen', 'Choose a cluster above to see its nodes and the inputs of the stack.');

function noNodes({ may }: Visit, { id, name }: ClusterAnswer): Html {
  return empty(
    `Cluster ${name} has no nodes yet`,
    may('clusters')
      ? html`<a href="/portal/clusters/${id}/nodes/new">Add a node</a> first.`
      : 'Ask a platform administrator to add a node.',
  );
}

/** Chooses the cluster by reloading the page, so that it works without a script. */
function clusterForm(
  stack: StackAnswer,
  list: readonly ClusterSummaryAnswer[],
  chosen: ClusterAnswer | null,
  version: string,
): Html {
  const path = `${stackPath(stack)}/apply`;
  const options = list.map(({ id, name, nodes_total: nodes }) => ({
    value: id,
    label: `${name} (${nodes} ${nodes === 1 ? 'node' : 'nodes'})`,
  }));
  const listed = chosen === null || options.some(({ value }) => value === chosen.id);
  const own = listed ? [] : [{ value: chosen.id, label: chosen.name }];
  const chosenId = chosen?.id ?? '';
  const choices = [{ value: '', label: 'Choose…' }, ...own, ...options];
  const field = chooser({ name: 'cluster', label: 'Cluster', options: choices, chosen: chosenId });
  const kept = version === '' ? null : html`<input type="hidden" name="version" value="${version}" />`;
  return filterForm(path, html`${kept}${field}`, 'Choose');
}

interface FormOptions {
  readonly stack: StackAnswer;
  readonly cluster: ClusterAnswer;
  readonly wanted: Wanted;
  readonly refusal: Refusal | null;
}

function form(visit: Visit, { stack, cluster, wanted, refusal }: FormOptions): Html {
  const access = wanted.access === '' ? cluster.access : wanted.access;
  return html`<form class="form" method="post" action="${stackPath(stack)}/apply">
    ${formToken(visit)} ${onceField()} ${refused(refusal)}
    <input type="hidden" name="cluster_id" value="${cluster.id}" />
    <input type="hidden" name="stack_version" value="${wanted.version}" />
    ${nodeField(stack, cluster, wanted.node, refusal)}
    <fieldset>
      <legend>Inputs</legend>
      <div class="form">
        ${stack.inputs.length === 0 ? html`<p class="quiet">This stack has no inputs.</p>` : inputFields(stack.inputs, wanted.inputs, refusal)}
      </div>
    </fieldset>
    ${accessField(stack, cluster, access)}
    ${radios({ name: 'mode', legend: 'After the plan', choices: modes, chosen: wanted.mode, hint: 'A plan that waits for confirmation makes other runs of the cluster wait, at most 24 hours.' })}
    ${chooser({ name: 'life', label: 'Expires after', options: lives, chosen: wanted.life, hint: 'Headgate sends a notice before, then destroys the resources.', problem: problemOf(refusal, 'expires_after', 'The life') })}
    ${chooser({ name: 'drift', label: 'Drift checks', options: driftChoices, chosen: wanted.drift, hint: 'A check reports resources that were changed or deleted outside of Headgate. It changes nothing.' })}
    <p class="buttons"><button class="primary">Apply</button> <a href="${stackPath(stack)}">Cancel</a></p>
  </form>`;
}

const fits = ({ applicable_profiles: profiles }: StackAnswer, { hardware_profile: profile }: NodeAnswer): boolean =>
  profiles === null || profiles.includes(profile);

function nodeField(stack: StackAnswer, cluster: ClusterAnswer, chosen: string, refusal: Refusal | null): MaybeHtml {
  const { nodes, name } = cluster;
  const problem = problemOf(refusal, 'cluster_id', 'The cluster') ?? problemOf(refusal, 'node', 'The node');
  const others = nodes.filter((node) => !fits(stack, node));
  const isWhole = others.length === 0;
  const whole = {
    value: '',
    label: `whole cluster ${name} (${nodes.length} ${nodes.length === 1 ? 'node' : 'nodes'})`,
    isDisabled: !isWhole,
  };
  const options = nodes.map((node): Option => {
    const is = `${node.name} (${node.hardware_profile}${node.gpus === 0 ? '' : `, ${node.gpus} GPUs`})`;
    return { value: node.name, label: is, isDisabled: !fits(stack, node) };
  });
  const first = options.find(({ isDisabled }) => isDisabled !== true)?.value ?? '';
  const profiles = stack.applicable_profiles?.join(', ') ?? '';
  const hint =
    others.length === 0
      ? null
      : `This stack requires nodes with profile ${profiles}. ${others.length} of ${nodes.length} nodes do not match and cannot be chosen.`;
  return chooser({
    name: 'node',
    label: 'Target',
    options: [whole, ...options],
    chosen: chosen === '' && !isWhole ? first : chosen,
    hint,
    problem,
  });
}

function accessField({ web }: StackAnswer, cluster: ClusterAnswer, chosen: string): MaybeHtml {
  if (web === null) return html`<input type="hidden" name="access" value="${chosen}" />`;
  if (cluster.public_domain === null) {
    return html`<p class="hint">
      The cluster has no public domain, so the run gets no web address. A platform administrator can set the domain.
    </p>`;
  }
  const hint =
    cluster.access === 'members'
      ? 'This cluster restricts all web addresses to members, regardless of this choice.'
      : `A subdomain of ${cluster.public_domain}. Members open it from the run page.`;
  const choices = [
    { value: 'public', label: 'Everyone' },
    { value: 'members', label: 'Members of the organization' },
  ];
  return radios({ name: 'access', legend: 'Web access', choices, chosen, hint });
}

const driftChoices = [
  { value: '', label: 'Regularly' },
  { value: 'off', label: 'Only when requested' },
];

const modes = [
  { value: '', label: 'Apply' },
  { value: 'confirm', label: 'Wait for confirmation' },
  { value: 'plan', label: 'Change nothing' },
];

export async function applyStack(visit: Visit, name: string, typed: Form): Promise<Response> {
  const version = typed.text('stack_version');
  const stack = await readStack(visit, name, version);
  const [cluster, node, access] = [typed.text('cluster_id'), typed.text('node'), typed.text('access')];
  const [mode, life, drift] = [typed.text('mode'), typed.text('life') || 'never', typed.text('drift')];
  const asked = {
    cluster_id: cluster,
    node: node === '' ? null : node,
    inputs: inputsOf(stack.inputs, typed),
    ...(access !== '' && { access }),
    ...(version !== '' && { stack_version: stack.version.number }),
    ...(mode === 'plan' && { plan_only: true }),
    ...(mode === 'confirm' && { auto_apply: false }),
    ...(drift === 'off' && { check_drift: false }),
    // The API rejects what the form does not offer.
    ...(lifeOf(life) !== null && { expires_after: lifeOf(life) ?? life }),
  };
  const path = `/v1/stacks/${stack.id}/apply`;
  const started = await visit.send<RunAnswer>('POST', path, asked, onceHeader(typed, asked));
  if (started.ok) return visit.context.redirect(`/portal/runs/${started.body.id}`, 303);
  const wanted = { version, cluster, node, access, mode, life, drift, inputs: typedTexts(stack.inputs, typed) };
  return applyPageOf(visit, stack, wanted, started.refusal);
}
