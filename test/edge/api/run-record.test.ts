import { beforeAll, describe, expect, it } from 'vitest';
import { packOf } from '#test/stacks/raw-zip.ts';
import { type Body, eventually, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { say } from '#test/cli/in-process.ts';
import { makePerson, signInPerson } from '#test/portal/visitor.ts';
import { runPauseMs, useRunsFolder } from '#test/runs-folder.ts';

/** Fields of a run that describe it: version, inputs, author, plan, and its place in the queue. */

const newRunsFolder = useRunsFolder();
const bench = useInference(async () => {
  return { engines: {}, env: { HEADGATE_RUNS_DIR: await newRunsFolder() } };
});

const module = (resources: number): string => `
  variable "word" { default = "hello" }
  variable "seconds" { default = 0 }
  variable "password" {
    sensitive = true
    default   = ""
  }
  variable "unset" {
    sensitive = true
    default   = ""
  }
  resource "terraform_data" "a" {
    count = ${resources}
    input = var.word
    provisioner "local-exec" { command = "sleep $\{var.seconds}" }
  }`;

let mine = { id: '', key: '' };
let keyId = '';
let count = 0;
const ask = async (path: string, options: object = {}): Promise<Body> =>
  JSON.parse(await (await bench.gateway.request(path, options)).text());
const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
const cluster = async (organization_id = mine.id): Promise<string> =>
  (await ask('/v1/clusters', { body: { name: `record-${(count += 1)}`, organization_id, nodes } })).id;
const apply = (cluster_id: string, inputs: object = {}, key = mine.key): Promise<Body> =>
  ask('/v1/stacks/recorded/apply', { key, body: { cluster_id, inputs } });
const ended = (id: string): Promise<Body> =>
  eventually(async () => {
    const run = await ask(`/v1/runs/${id}`);
    return run.ended_at === null ? null : run;
  }, runPauseMs);
const idsOf = async (query: string, key = mine.key): Promise<string[]> =>
  (await ask(`/v1/runs?${query}`, { key })).data.map(({ id }: Body) => id);

async function push(resources: number): Promise<void> {
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module(resources) }))], 'x.zip'));
  form.append('name', 'recorded');
  const headers = { authorization: `Bearer ${bench.gateway.key}` };
  const pushed = await fetch(new URL('/v1/stacks', bench.gateway.url), { method: 'POST', headers, body: form });
  if (!pushed.ok) throw new Error(await pushed.text());
}

beforeAll(async () => {
  mine = await openOrganization(bench.gateway, '5');
  [{ id: keyId }] = (await ask('/v1/keys?limit=1', { key: mine.key })).data;
  await push(2);
});

describe('a run', () => {
  it('starts with inputs that equal a sensitive number, or have a sensitive word behind a line break', async () => {
    const form = new FormData();
    const variables = `
      variable "pin" {
        type      = number
        sensitive = true
      }
      variable "port" { type = map(number) }
      variable "note" {}`;
    form.append('file', new File([new Uint8Array(packOf({ 'main.tf': variables }))], 'x.zip'));
    form.append('name', 'pinned');
    const headers = { authorization: `Bearer ${bench.gateway.key}` };
    await fetch(new URL('/v1/stacks', bench.gateway.url), { method: 'POST', headers, body: form });
    const inputs = { pin: 12_345, port: { number: 12_345, other: 80 }, note: 'it is\n12345' };
    const run = await ask('/v1/stacks/pinned/apply', { key: mine.key, body: { cluster_id: await cluster(), inputs } });
    expect(run.inputs).toEqual({
      pin: { sensitive: true, set: true },
      port: { sensitive: false, set: true, value: { number: '***', other: 80 } },
      note: { sensitive: false, set: true, value: 'it is\n***' },
    });
    await ended(run.id);
  });

  it('names its version, inputs, author, program and the counts of its plan', async () => {
    const clusterId = await cluster();
    const first = await ended((await apply(clusterId, { word: 'tell s3cr3t-word', password: 's3cr3t-word' })).id);
    expect(first).toMatchObject({
      status: 'APPLIED',
      stack_version: 1,
      created_by: keyId,
      created_via: 'api',
      queue_position: null,
      plan: { add: 2, change: 0, remove: 0 },
      inputs: {
        word: { sensitive: false, set: true, value: 'tell ***' },
        seconds: { sensitive: false, set: false },
        password: { sensitive: true, set: true },
        unset: { sensitive: true, set: false },
      },
    });
    const { data } = await ask(`/v1/runs/${first.id}/logs`, { key: mine.key });
    expect(data.map(({ message }: Body) => message)).toContain('Plan: 2 to add, 0 to change, 0 to destroy.');
    await push(1);
    const second = await ended((await apply(clusterId, { word: 'other' })).id);
    expect(second).toMatchObject({ stack_version: 2, plan: { add: 0, change: 1, remove: 1 } });
    const destroy = await ask(`/v1/runs/${second.id}/destroy`, { method: 'POST', key: mine.key });
    expect(await ended(destroy.id)).toMatchObject({ stack_version: 2, plan: { add: 0, change: 0, remove: 1 } });
    expect(JSON.stringify(await ask('/v1/runs', { key: mine.key }))).not.toContain('s3cr3t');
  });

  it('knows its place in the queue of its cluster', async () => {
    const clusterId = await cluster();
    const active = await apply(clusterId, { seconds: 3600 });
    await eventually(async () => ((await ask(`/v1/runs/${active.id}`)).status === 'APPLYING' ? true : null));
    const waiting = [await apply(clusterId), await apply(clusterId), await apply(clusterId)];
    expect(waiting.map(({ queue_position: at }) => at)).toEqual([1, 2, 3]);
    await ask(`/v1/runs/${waiting[0].id}/cancel`, { method: 'POST', key: mine.key });
    const places = await Promise.all(waiting.map(async ({ id }) => (await ask(`/v1/runs/${id}`)).queue_position));
    expect(places).toEqual([null, 1, 2]);
    const listed = await say(['runs', 'ls', '--status', 'PENDING,APPLYING', '--cluster', clusterId], {
      url: bench.gateway.url,
      key: mine.key,
    });
    expect(listed.stdout).toContain('PENDING (2 in queue)');
    expect(listed.stdout).toMatch(/APPLYING +\+[12] ~0 -0/);
    for (const { id } of [...waiting.slice(1), active])
      await ask(`/v1/runs/${id}/cancel`, { method: 'POST', key: mine.key });
    await ended(active.id);
  });

  it('says that it came from the command line, or from the portal and by whom', async () => {
    const clusterId = await cluster();
    const args = ['stacks', 'apply', 'recorded', '--cluster', clusterId, '--json'];
    const { stdout } = await say(args, { url: bench.gateway.url, key: mine.key });
    expect(JSON.parse(stdout)).toMatchObject({ created_via: 'cli', created_by: keyId });
    const { id: userId, email } = await makePerson(bench.gateway, { role: 'member' }, mine.key);
    const visitor = await signInPerson(bench.gateway, email);
    const fields = { cluster_id: clusterId, node: '', access: '', 'input.password': 's3cr3t-word' };
    const sent = await visitor.post('/portal/stacks/recorded/apply', fields);
    const id = /run_[0-9a-f]{32}/.exec(String(sent.headers.location))?.[0] ?? sent.text;
    expect(await ended(id)).toMatchObject({ created_via: 'portal', created_by: userId });
    const { text } = await visitor.get(`/portal/runs/${id}`);
    for (const shown of ['in the portal', 'version 2', 'Inputs of the run', 'Plan: ']) expect(text).toContain(shown);
    expect(await idsOf(`created_by=${userId}`)).toEqual([id]);
    expect(await idsOf(`created_by=${keyId}&cluster_id=${clusterId}`)).toHaveLength(1);
    expect((await visitor.get(`/portal/runs?created_by=${userId}&from=2020-01-01`)).text).toContain(id);
  });
});

describe('the list of runs', () => {
  it('is filtered by organization, several statuses and time', async () => {
    const theirs = await openOrganization(bench.gateway, '5');
    const [own, other] = [await apply(await cluster()), await apply(await cluster(theirs.id), {}, theirs.key)];
    for (const { id } of [own, other]) await ended(id);
    const all = await idsOf('limit=100', bench.gateway.key);
    expect(all).toEqual(expect.arrayContaining([own.id, other.id]));
    expect(await idsOf(`organization_id=${theirs.id}`, bench.gateway.key)).toEqual([other.id]);
    expect(await idsOf(`org=${theirs.id}`, bench.gateway.key)).toEqual([other.id]);
    expect((await bench.gateway.request(`/v1/runs?organization_id=${theirs.id}`, { key: mine.key })).status).toBe(404);
    expect(await idsOf('status=APPLIED,FAILED', theirs.key)).toEqual([other.id]);
    expect(await idsOf('status=PENDING,FAILED', theirs.key)).toEqual([]);
    expect(await idsOf(`from=${other.created_at}`, theirs.key)).toEqual([other.id]);
    expect(await idsOf(`to=${other.created_at}`, theirs.key)).toEqual([]);
    for (const query of ['status=APPLIED,DONE', 'status=', 'created_by=ada', 'from=yesterday'])
      expect([query, (await bench.gateway.request(`/v1/runs?${query}`)).status]).toEqual([query, 400]);
  });
});
