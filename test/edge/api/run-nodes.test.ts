import { beforeAll, describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { freePort } from '#test/free-port.ts';
import { type Body, eventually, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { runPauseMs, useRunsFolder } from '#test/runs-folder.ts';

/** Resources on a node belong to that machine, and not to its name; with real Terraform in bubblewrap. */

const newRunsFolder = useRunsFolder();
const bench = useInference(async () => {
  return {
    engines: {},
    env: { HEADGATE_RUNS_DIR: await newRunsFolder(), HEADGATE_WEB_PORT: String(await freePort()) },
  };
});

const module = `
  variable "nodes" {}
  resource "terraform_data" "a" {
    triggers_replace = var.nodes[0].name == "" ? "" : "once"
    provisioner "local-exec" { command = "echo installing on $\{var.nodes[0].address}" }
  }
  output "address" { value = var.nodes[0].address }`;

const page = `
  variable "node" { default = null }
  output "web_port" { value = 8080 }
  output "web_node" { value = var.node }`;

const engine = `
  output "engine" {
    value = { id = "served", task_type = "chat", context_length = 10, port = 1, node = "a" }
  }`;

const node = { name: 'a', address: '10.9.8.1', hardware_profile: 'plain' };
let mine = { id: '', key: '' };
let clusterId = '';
let count = 0;

const ask = async (path: string, options: object = {}): Promise<{ status: number; body: Body }> => {
  const answer = await bench.gateway.request(path, options);
  const text = await answer.text();
  return { status: answer.status, body: text.startsWith('{') ? JSON.parse(text) : text };
};

const ended = (id: string): Promise<Body> =>
  eventually(async () => {
    const { body } = await ask(`/v1/runs/${id}`, { key: mine.key });
    return body.ended_at === null ? null : body;
  }, runPauseMs);

const apply = (name: string): Promise<Body> => applyStack('where', { node: name });

async function applyStack(stack: string, more: object): Promise<Body> {
  const body = { cluster_id: clusterId, inputs: {}, ...more };
  const answer = await ask(`/v1/stacks/${stack}/apply`, { key: mine.key, body });
  expect([answer.status, answer.body.error]).toEqual([202, undefined]);
  return ended(answer.body.id);
}

/** Requests an action of a run from now on. */
const then = (action: 'destroy' | 'retry' | 'forget', { id }: Body): Promise<{ status: number; body: Body }> =>
  ask(`/v1/runs/${id}/${action}`, { method: 'POST', key: action === 'forget' ? bench.gateway.key : mine.key });

const remove = (name: string): Promise<{ status: number; body: Body }> =>
  ask(`/v1/clusters/${clusterId}/nodes/${name}`, { method: 'DELETE' });
const add = (more: object): Promise<{ status: number; body: Body }> =>
  ask(`/v1/clusters/${clusterId}/nodes`, { body: { ...node, ...more } });
const rename = (from: string, name: string): Promise<{ status: number; body: Body }> =>
  ask(`/v1/clusters/${clusterId}/nodes/${from}`, { method: 'PATCH', body: { name } });
const logOf = async ({ id }: Body): Promise<string> =>
  JSON.stringify((await ask(`/v1/runs/${id}/logs`, { key: mine.key })).body);

beforeAll(async () => {
  const { gateway } = bench;
  mine = await openOrganization(gateway, '5');
  for (const [name, text] of Object.entries({ where: module, page, engine })) {
    const form = new FormData();
    form.append('file', new File([new Uint8Array(packOf({ 'main.tf': text }))], `${name}.zip`));
    form.append('name', name);
    const headers = { authorization: `Bearer ${gateway.key}` };
    const pushed = await fetch(new URL('/v1/stacks', gateway.url), { method: 'POST', headers, body: form });
    if (pushed.status !== 201) throw new Error(await pushed.text());
  }
});

async function newCluster(): Promise<void> {
  const name = `of-nodes-${(count += 1)}`;
  const body = { name, organization_id: mine.id, public_domain: 'apps.test', nodes: [node] };
  clusterId = (await ask('/v1/clusters', { body })).body.id;
}

describe('a node with applied resources', () => {
  it('is not removed until they are destroyed or forgotten; a new node of that name has none', async () => {
    await newCluster();
    const first = await apply('a');
    expect(first).toMatchObject({ status: 'APPLIED', outputs: { address: { value: '10.9.8.1' } } });
    const refused = await remove('a');
    expect([refused.status, refused.body.error.message]).toEqual([
      409,
      `These runs have resources on the node: ${first.id}. Destroy them first, or forget them (POST /v1/runs/{id}/forget) if the machine no longer exists.`,
    ]);
    expect((await then('forget', first)).status).toBe(200);
    expect((await remove('a')).status).toBe(204);
    expect((await add({ address: '10.9.8.2' })).status).toBe(201);
    const second = await apply('a');
    expect(second).toMatchObject({ status: 'APPLIED', changes: { add: 1 } });
    expect(await logOf(second)).toContain('installing on 10.9.8.2');
    // A run for the deleted machine takes nothing from the one that has its name.
    const late = await then('destroy', first);
    expect([late.status, late.body.error.message]).toEqual([
      409,
      'The node of this run was removed from the cluster. Apply the stack to another node.',
    ]);
    expect((await then('destroy', second)).status).toBe(202);
  });

  it('is not removed while a run for it is pending or running', async () => {
    await newCluster();
    const body = { cluster_id: clusterId, node: 'a', inputs: {} };
    const { body: run } = await ask('/v1/stacks/where/apply', { key: mine.key, body });
    const answers = [await remove('a'), await rename('a', 'b')];
    const last = await ended(run.id);
    expect(last.status).toBe('APPLIED');
    for (const { status, body: answer } of answers)
      expect([status, answer.error.message]).toEqual([409, expect.stringContaining(run.id)]);
  });

  it('keeps its resources when renamed: apply finds them, and destroy removes them', async () => {
    await newCluster();
    const first = await apply('a');
    expect((await rename('a', 'c')).status).toBe(200);
    expect((await ask(`/v1/runs/${first.id}`, { key: mine.key })).body.node).toBe('c');
    const second = await apply('c');
    expect(second).toMatchObject({ status: 'APPLIED', changes: { add: 0 } });
    const destroy = await then('destroy', second);
    expect(destroy.status).toBe(202);
    expect(await ended(destroy.body.id)).toMatchObject({ status: 'DESTROYED', node: 'c', changes: { remove: 1 } });
    expect((await remove('c')).status).toBe(204);
  });

  it('can take the name of a removed node', async () => {
    await newCluster();
    expect((await add({ name: 'b' })).status).toBe(201);
    const gone = await apply('b');
    expect((await then('forget', gone)).status).toBe(200);
    expect((await remove('b')).status).toBe(204);
    const first = await apply('a');
    expect((await rename('a', 'b')).status).toBe(200);
    const destroy = await then('destroy', first);
    expect(await ended(destroy.body.id)).toMatchObject({ status: 'DESTROYED', changes: { remove: 1 } });
  });
});

describe('a web address of the whole cluster', () => {
  const gone = (name: string): object => ({
    url: null,
    url_problem: `the node ${name} was removed from the cluster: apply the stack again to get an address on another node`,
  });
  const shown = async ({ id }: Body): Promise<Body> => (await ask(`/v1/runs/${id}`, { key: mine.key })).body;

  it('stops when its node is removed, and does not move to another node or one of that name', async () => {
    await newCluster();
    expect((await add({ name: 'b' })).status).toBe(201);
    const [first, second] = [await applyStack('page', {}), await applyStack('where', {})];
    expect(first).toMatchObject({ status: 'APPLIED', url: expect.stringContaining('.apps.test/') });
    expect(second.status).toBe('APPLIED');
    expect((await remove('a')).status).toBe(204);
    expect(await shown(first)).toMatchObject(gone('a'));
    expect((await add({ address: '10.9.8.2' })).status).toBe(201);
    expect(await shown(first)).toMatchObject(gone('a'));
    const again = await applyStack('page', {});
    expect(again).toMatchObject({ status: 'APPLIED', url: first.url, url_problem: null });
  });

  it('follows a rename of its node, and stays when another node is removed', async () => {
    await newCluster();
    expect((await add({ name: 'b' })).status).toBe(201);
    const run = await applyStack('page', { inputs: { node: 'b' } });
    expect((await remove('a')).status).toBe(204);
    expect((await rename('b', 'c')).status).toBe(200);
    expect(await shown(run)).toMatchObject({ url: run.url, url_problem: null });
    expect((await remove('c')).status).toBe(204);
    expect(await shown(run)).toMatchObject(gone('c'));
  });
});

describe('a model of the whole cluster', () => {
  const engines = async (): Promise<Body> => (await ask('/v1/admin/engines')).body;
  const served = async (): Promise<string[]> => (await ask('/v1/models')).body.data.map(({ id }: Body) => id);

  it('follows a rename of its node, and does not move to another machine of that name', async () => {
    await newCluster();
    const body = { cluster_id: clusterId, inputs: {} };
    const { body: run } = await ask('/v1/stacks/engine/apply', { body });
    expect((await ended(run.id)).status).toBe('APPLIED');
    await eventually(async () => (await served()).includes('served'));
    expect((await rename('a', 'c')).status).toBe(200);
    expect((await add({ address: '10.9.8.2' })).status).toBe(201);
    expect((await ask(`/v1/runs/${run.id}`)).body.outputs.engine.value.node).toBe('c');
    expect((await ask('/v1/admin/engines/reload', { method: 'POST' })).status).toBe(200);
    expect([await served(), (await engines()).files.left_out]).toEqual([['served'], []]);
    expect((await remove('c')).status).toBe(204);
    await eventually(async () => !(await served()).includes('served'));
    expect((await add({ name: 'c', address: '10.9.8.3' })).status).toBe(201);
    expect((await ask('/v1/admin/engines/reload', { method: 'POST' })).status).toBe(200);
    expect(await served()).toEqual([]);
  });

  it('is removed with its cluster, and is no mistake of an engine', async () => {
    await newCluster();
    const { body: run } = await ask('/v1/stacks/engine/apply', { body: { cluster_id: clusterId, inputs: {} } });
    expect((await ended(run.id)).status).toBe('APPLIED');
    await eventually(async () => (await served()).includes('served'));
    expect((await ask(`/v1/clusters/${clusterId}`, { method: 'DELETE' })).status).toBe(204);
    await eventually(async () => !(await served()).includes('served'));
    expect((await engines()).files.left_out).toEqual([]);
  });
});
