import { beforeAll, describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { type Body, eventually, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { runPauseMs, useRunsFolder } from '#test/runs-folder.ts';

/** A gateway that applies stacks with real Terraform in bubblewrap, from a request to what it leaves. */

const newRunsFolder = useRunsFolder();
const bench = useInference(async () => {
  return { engines: {}, env: { HEADGATE_RUNS_DIR: await newRunsFolder() } };
});
// The gateway removes folders of runs at the same time: what it moves meanwhile is found by the next try.

const module = `
  variable "password" { sensitive = true }
  variable "word" { default = "hello" }
  variable "cluster_name" {}
  resource "terraform_data" "a" {
    input = "$\{var.word} $\{var.cluster_name}"
    provisioner "local-exec" { command = "echo said by the module" }
  }
  output "said" { value = terraform_data.a.output }`;

const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
let mine = { id: '', key: '' };
let theirs = { id: '', key: '' };

const ask = async (path: string, options: object = {}): Promise<{ status: number; body: Body }> => {
  const answer = await bench.gateway.request(path, options);
  const text = await answer.text();
  return { status: answer.status, body: text.startsWith('{') ? JSON.parse(text) : text };
};

async function cluster(name: string): Promise<string> {
  return (await ask('/v1/clusters', { body: { name, organization_id: mine.id, nodes } })).body.id;
}

const apply = (clusterId: string, inputs: object, more: object = {}) =>
  ask('/v1/stacks/words/apply', { key: mine.key, body: { cluster_id: clusterId, inputs, ...more } });

const ended = (id: string): Promise<Body> =>
  eventually(async () => {
    const { body } = await ask(`/v1/runs/${id}`, { key: mine.key });
    return body.ended_at === null ? null : body;
  }, runPauseMs);

const eventsOf = async (id: string, headers: object = {}): Promise<string> =>
  (await ask(`/v1/runs/${id}/logs`, { key: mine.key, headers: { accept: 'text/event-stream', ...headers } })).body;

beforeAll(async () => {
  const { gateway } = bench;
  mine = await openOrganization(gateway, '5');
  theirs = await openOrganization(gateway, '5');
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module }))], 'words.zip'));
  form.append('name', 'words');
  const headers = { authorization: `Bearer ${gateway.key}` };
  const pushed = await fetch(new URL('/v1/stacks', gateway.url), { method: 'POST', headers, body: form });
  if (pushed.status !== 201) throw new Error(await pushed.text());
});

describe('a rejected apply', () => {
  it('names a sensitive input that is too short to hide in logs', async () => {
    const refused = await apply(await cluster('short'), { password: 'abc' });
    expect(refused.status).toBe(400);
    expect(refused.body.error.details).toEqual([
      { field: 'inputs.password', message: expect.stringContaining('must have at least 4 characters') },
    ]);
  });

  it('names all problems of inputs and node', async () => {
    const refused = await apply(await cluster('refused'), { word: 7, colour: 'red' }, { node: 'n-2' });
    expect(refused.status).toBe(400);
    const fields = refused.body.error.details.map(({ field }: Body) => field);
    expect(fields.toSorted()).toEqual(['inputs.colour', 'inputs.password', 'inputs.word', 'node']);
  });

  it('returns 404 for a cluster of another organization', async () => {
    const body = { cluster_id: await cluster('foreign'), inputs: { password: 'secret-1' } };
    expect((await ask('/v1/stacks/words/apply', { key: theirs.key, body })).status).toBe(404);
  });

  it('returns 404 for an archived cluster', async () => {
    const id = await cluster('deleted');
    expect((await ask(`/v1/clusters/${id}`, { method: 'DELETE' })).status).toBe(204);
    expect((await apply(id, { password: 'secret-1' })).status).toBe(404);
  });
});

describe('a run', () => {
  it('is followed line by line to its end, is hidden from others, and is destroyed', async () => {
    const clusterId = await cluster('research');
    const { status, body: run } = await apply(clusterId, { password: 'secret-1' });
    expect([status, run.stack, run.cluster_id, run.node]).toEqual([202, 'words', clusterId, null]);
    const events = await eventsOf(run.id);
    expect(events).toContain('said by the module');
    expect(events).not.toContain('secret-1');
    expect(events.trimEnd()).toMatch(/event: status\ndata: {"status":"APPLIED","failure_code":null}$/);
    const applied = await ended(run.id);
    expect(applied).toMatchObject({ status: 'APPLIED', outputs: { said: { value: 'hello research' } } });
    const ids = [...events.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id));
    expect(ids).toEqual(Array.from({ length: applied.log_lines }, (_, index) => index + 1));
    const rest = await eventsOf(run.id, { 'last-event-id': String(applied.log_lines - 1) });
    expect([...rest.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))).toEqual([applied.log_lines]);
    const lines = await ask(`/v1/runs/${run.id}/logs?after=1&limit=1`, { key: mine.key });
    expect(lines.body).toMatchObject({ data: [{ seq: 2 }], next_after: 2, complete: false });
    for (const path of [`/v1/runs/${run.id}`, `/v1/runs/${run.id}/logs`]) {
      expect((await ask(path, { key: theirs.key })).status).toBe(404);
    }
    const listed = await ask(`/v1/runs?cluster_id=${clusterId}&status=APPLIED`, { key: mine.key });
    expect(listed.body).toMatchObject({ data: [{ id: run.id }], pagination: { total: 1 } });
    expect((await ask('/v1/runs', { key: theirs.key })).body.data).toEqual([]);
    expect((await ask(`/v1/runs/${run.id}/retry`, { key: mine.key, method: 'POST' })).status).toBe(409);
    const destroy = await ask(`/v1/runs/${run.id}/destroy`, { key: mine.key, method: 'POST' });
    expect(destroy.status).toBe(202);
    expect(await ended(destroy.body.id)).toMatchObject({ status: 'DESTROYED', changes: { remove: 1 } });
    expect((await ask(`/v1/runs/${run.id}`, { key: mine.key })).body.status).toBe('SUPERSEDED');
  });

  it('is created once for an Idempotency-Key; a repeated destroy or retry is one run', async () => {
    const clusterId = await cluster('once');
    const [other, body] = [await cluster('once-more'), { cluster_id: clusterId, inputs: { password: 'secret-1' } }];
    const headers = { 'idempotency-key': 'form-1' };
    const once = (id = clusterId) =>
      ask('/v1/stacks/words/apply', { key: mine.key, headers, body: { ...body, cluster_id: id } });
    const [first, second] = await Promise.all([once(), once()]);
    expect([first.status, second.status, second.body.id]).toEqual([202, 202, first.body.id]);
    await ended(first.body.id);
    // The first answer, read or not, is repeated.
    expect((await once()).body).toMatchObject({ id: first.body.id, status: 'APPLIED' });
    const again = (id: string, action: string, more: object = {}) =>
      ask(`/v1/runs/${id}/${action}`, { key: mine.key, method: 'POST', ...more });
    // The key stands for that apply: other inputs, another cluster or stack and a removal are other requests.
    const others = [
      once(other),
      ask('/v1/stacks/words/apply', { key: mine.key, headers, body: { ...body, inputs: { password: 'secret-2' } } }),
      again(first.body.id, 'destroy', { headers }),
    ];
    for (const answer of await Promise.all(others)) {
      expect([answer.status, answer.body.error.code]).toEqual([422, 'UNPROCESSABLE']);
    }
    // Somebody else may call a request of his the same.
    const foreign = { cluster_id: clusterId, inputs: { password: 'secret-1' } };
    expect((await ask('/v1/stacks/words/apply', { key: theirs.key, headers, body: foreign })).status).toBe(404);
    const [one, two] = await Promise.all([1, 2].map(() => again(first.body.id, 'destroy')));
    expect(one?.body).toMatchObject({ id: two?.body.id, operation: 'destroy' });
    expect(await ended(one?.body.id)).toMatchObject({ status: 'DESTROYED' });
    await ask(`/v1/clusters/${other}`, { method: 'DELETE' });
    await bench.gateway.db.sql`
      update runs set status = 'FAILED', failure_code = 'APPLY_FAILED' where id = ${parseId('run', first.body.id)}`;
    const retryTwice = () =>
      Promise.all([1, 2].map((n) => again(first.body.id, 'retry', { headers: { 'idempotency-key': `retry-${n}` } })));
    const retries = await retryTwice();
    await ended(retries[0]?.body.id);
    // One of the two was answered with the run of the other, and is so again.
    const ids = [...retries, ...(await retryTwice())].map(({ body: { id } }) => id);
    expect(ids).toEqual(ids.map(() => retries[0]?.body.id));
    const { body: list } = await ask(`/v1/runs?cluster_id=${clusterId}`, { key: mine.key });
    expect(list.pagination.total).toBe(3);
    expect(
      (await ask('/v1/stacks/words/apply', { key: mine.key, headers: { 'idempotency-key': '' }, body })).status,
    ).toBe(400);
  });

  it('fails when its cluster is archived while it is pending', async () => {
    const clusterId = await cluster('short-lived');
    const runs = [await apply(clusterId, { password: 'secret-1' }), await apply(clusterId, { password: 'secret-2' })];
    expect((await ask(`/v1/clusters/${clusterId}`, { method: 'DELETE' })).status).toBe(204);
    const last = await ended(runs[1]?.body.id);
    expect(last).toMatchObject({ status: 'FAILED', failure_code: 'CLUSTER_GONE' });
    await ended(runs[0]?.body.id);
  });
});
