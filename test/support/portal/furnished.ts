import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { eventually } from '#test/inference/inference-gateway.ts';
import type { TestGateway } from '#test/gateway.ts';
import { makePerson } from './visitor.ts';

/** A gateway with one of everything that pages show. */

type Gateway = Pick<TestGateway, 'url' | 'key' | 'db' | 'request'>;

interface Made {
  readonly id: string;
}

export interface Furnished {
  readonly organizationId: string;
  readonly keyId: string;
  readonly projectId: string;
  readonly serviceAccountId: string;
  readonly userId: string;
  readonly otherOrganizationId: string;
  readonly clusterId: string;
  readonly nodeId: string;
  /** By its name. */
  readonly stack: string;
  /** A failed run: its remains may be destroyed and forgotten. */
  readonly runId: string;
}

async function made<T = Made>({ request }: Gateway, path: string, body: object): Promise<T> {
  const answer = await request(path, { body });
  if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
  return (await answer.json()) as T;
}

async function upload<T>({ url, key }: Gateway, path: string, form: FormData): Promise<T> {
  const headers = { authorization: `Bearer ${key}` };
  const answer = await fetch(new URL(path, url), { method: 'POST', headers, body: form });
  if (!answer.ok) throw new Error(`${path}: ${await answer.text()}`);
  return (await answer.json()) as T;
}

/** Runs a batch of two lines, of which one is rejected: it has answers and errors. */
async function runBatch(gateway: Gateway): Promise<void> {
  const messages = [{ role: 'user', content: 'Hello' }];
  const line = (id: string, model: string): string =>
    JSON.stringify({ custom_id: id, method: 'POST', url: '/v1/chat/completions', body: { model, messages } });
  const [good, wrong] = [
    line('good', 'standin-chat'),
    JSON.stringify({ ...(JSON.parse(line('wrong', 'standin-chat')) as object), body: { model: 'standin-chat' } }),
  ];
  const form = new FormData();
  form.set('purpose', 'batch');
  form.set('file', new Blob([`${good}\n${wrong}\n`]), 'lines.jsonl');
  const file = await upload<Made>(gateway, '/v1/files', form);
  const batch = { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' };
  const { id } = await made(gateway, '/v1/batches', batch);
  await eventually(async () => {
    const { status } = (await (await gateway.request(`/v1/batches/${id}`)).json()) as { status: string };
    return status === 'completed';
  });
}

/** Uploads a stack with two versions. */
async function uploadStack(gateway: Gateway, name: string): Promise<string> {
  await uploadVersion(gateway, name, 'hi');
  return uploadVersion(gateway, name, 'hello');
}

async function uploadVersion(gateway: Gateway, name: string, greeting: string): Promise<string> {
  const main = `
    variable "greeting" { default = "${greeting}" }
    output "said" { value = var.greeting }`;
  const form = new FormData();
  form.set('file', new Blob([new Uint8Array(packOf({ 'main.tf': main }))]), `${name}.zip`);
  form.set('name', name);
  return (await upload<Made>(gateway, '/v1/stacks', form)).id;
}

interface RunOf {
  readonly cluster: string;
  readonly organization: string;
  readonly stack: string;
}

/** As a run leaves it that failed. @param of ids as the API shows them */
async function insertRun({ db: { sql } }: Gateway, of: RunOf): Promise<string> {
  const [id, installation] = [uuidv7(), uuidv7()];
  const [clusterId, owner] = [parseId('cluster', of.cluster), parseId('org', of.organization)];
  const stackId = parseId('stack', of.stack);
  await sql`
    insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
    values (${installation}, ${clusterId}, ${stackId}, 'queue', 'gpu-1', now())`;
  await sql`
    insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
      created_at, ended_at, failure_code, failure_message, log_lines)
    values (${id}, ${installation}, ${clusterId}, ${owner}, ${uuidv7()}, 'apply', 'FAILED', '', now(), now(),
      'APPLY_FAILED', 'No space left on device', 1)`;
  await sql`
    insert into run_log (run_id, seq, at, phase, level, type, message)
    values (${id}, 1, now(), 'apply', 'error', 'log', 'No space left on device')`;
  return `run_${id.replaceAll('-', '')}`;
}

/** @param gateway with the engines that come with the product */
export async function furnish(gateway: Gateway): Promise<Furnished> {
  const { data } = (await (await gateway.request('/v1/organizations')).json()) as { data: Made[] };
  const organizationId = data[0]?.id ?? '';
  const key = await made<Made & { secret: string }>(gateway, '/v1/keys', { name: 'nightly', store_requests: true });
  const messages = [{ role: 'user', content: 'Hello' }];
  const body = { model: 'standin-chat', messages, max_tokens: 5 };
  await (await gateway.request('/v1/chat/completions', { key: key.secret, body })).text();
  const project = await made(gateway, '/v1/projects', { name: 'Research', description: 'what is looked into' });
  const accounts = `/v1/organization/projects/${project.id}/service_accounts`;
  const account = await made(gateway, accounts, { name: 'crawler' });
  await made(gateway, '/v1/webhooks', { url: 'https://example.com/in', description: 'Pager', events: null });
  for (const scope of [
    { type: 'api_key', id: key.id },
    { type: 'project', id: project.id },
    { type: 'user', id: null },
  ]) {
    await made(gateway, '/v1/budgets', { scope, period: 'daily', amount: '5' });
  }
  await made(gateway, '/v1/invitations', { email: `${uuidv7()}@example.com`, role: 'member' });
  const person = await makePerson(gateway);
  const other = await made(gateway, '/v1/organizations', { name: 'Water Works' });
  const node = { name: 'gpu-1', address: '10.0.0.7', hardware_profile: 'h100-8x', gpus: 8 };
  const cluster = await made<Made & { nodes: readonly Made[] }>(gateway, '/v1/clusters', {
    name: 'research',
    organization_id: organizationId,
    nodes: [node],
  });
  const of = { cluster: cluster.id, organization: organizationId };
  const runId = await insertRun(gateway, { ...of, stack: await uploadStack(gateway, 'queue') });
  // A run of a stack that was deleted since.
  await insertRun(gateway, { ...of, stack: formatId('stack', uuidv7()) });
  await made(gateway, '/v1/billing/rate-cards', { hardware_profile: 'h100-8x', currency: 'USD', gpu_hour: '2.50' });
  await runBatch(gateway);
  await gateway.db.sql`
    insert into usage_quarantine (id, record, error, created_at)
    values (${uuidv7()}, '{}', 'unsupported Unicode escape sequence', now())`;
  return {
    organizationId,
    keyId: key.id,
    projectId: project.id,
    serviceAccountId: account.id,
    userId: person.id,
    otherOrganizationId: other.id,
    clusterId: cluster.id,
    nodeId: cluster.nodes[0]?.id ?? '',
    stack: 'queue',
    runId,
  };
}
