import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LocalReceiver, startLocalReceiver } from '#test/alerts/local-receiver.ts';
import { verified } from '#test/alerts/receiver.ts';
import { type Body, eventually, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { runPauseMs, useRunsFolder } from '#test/runs-folder.ts';

/** Webhooks about runs, of a gateway whose jobs run. */

const newRunsFolder = useRunsFolder();
let receiver: LocalReceiver;
const bench = useInference(async () => {
  receiver = await startLocalReceiver();
  return { engines: {}, env: { HEADGATE_RUNS_DIR: await newRunsFolder(), HEADGATE_WEBHOOK_HOSTS: receiver.host } };
});
afterAll(() => receiver.close());

const module = `
  variable "command" { default = "true" }
  variable "password" {
    sensitive = true
    default   = ""
  }
  resource "terraform_data" "a" {
    provisioner "local-exec" { command = var.command }
  }`;

interface Tenant {
  readonly id: string;
  readonly key: string;
  readonly secret: string;
}

let mine: Tenant;
let theirs: Tenant;
let count = 0;
const ask = async (path: string, options: object = {}): Promise<Body> =>
  JSON.parse(await (await bench.gateway.request(path, options)).text());
const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
const cluster = async (): Promise<string> =>
  (await ask('/v1/clusters', { body: { name: `notices-${(count += 1)}`, organization_id: mine.id, nodes } })).id;
const apply = (cluster_id: string, inputs: object = {}, more: object = {}): Promise<Body> =>
  ask('/v1/stacks/noticed/apply', { key: mine.key, body: { cluster_id, inputs, ...more } });
const post = (path: string): Promise<Body> => ask(path, { method: 'POST', key: mine.key });
const ended = (id: string): Promise<Body> =>
  eventually(async () => {
    const run = await ask(`/v1/runs/${id}`);
    return run.ended_at === null ? null : run;
  }, runPauseMs);

async function makeTenant(): Promise<Tenant> {
  const organization = await openOrganization(bench.gateway, '5');
  const { secret } = await ask('/v1/webhooks', { body: { url: receiver.url }, key: organization.key });
  return { ...organization, secret };
}

/** The events about a run that the webhooks got. */
const eventsOf = (id: string): Body[] =>
  receiver.got.filter(({ body }) => body.includes(id)).map((got) => verified(mine.secret, got));
const typesOf = (id: string): string[] => eventsOf(id).map(({ type }) => type);

beforeAll(async () => {
  [mine, theirs] = [await makeTenant(), await makeTenant()];
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module }))], 'x.zip'));
  form.append('name', 'noticed');
  const headers = { authorization: `Bearer ${bench.gateway.key}` };
  await fetch(new URL('/v1/stacks', bench.gateway.url), { method: 'POST', headers, body: form });
});

describe('a webhook', () => {
  it('gets runs that succeeded or failed, once each, without inputs and messages', async () => {
    const clusterId = await cluster();
    const applied = await ended((await apply(clusterId, { password: 's3cr3t-word' })).id);
    const failed = await ended((await apply(await cluster(), { command: 'echo s3cr3t-words >&2; false' })).id);
    const destroyed = await ended((await post(`/v1/runs/${applied.id}/destroy`)).id);
    await expect.poll(() => typesOf(destroyed.id), { timeout: 20_000 }).toEqual(['run.succeeded']);
    expect(typesOf(applied.id)).toEqual(['run.succeeded']);
    expect(eventsOf(applied.id)[0]).toMatchObject({
      organization_id: mine.id,
      data: {
        status: 'APPLIED',
        failure_code: null,
        operation: 'apply',
        stack: 'noticed',
        stack_version: 1,
        cluster_id: clusterId,
        cluster: 'notices-1',
        node: null,
        created_by: applied.created_by,
        created_via: 'api',
        plan: { add: 1, change: 0, remove: 0 },
        confirm_by: null,
      },
    });
    expect(eventsOf(failed.id)).toMatchObject([{ type: 'run.failed', data: { failure_code: 'APPLY_FAILED' } }]);
    expect(receiver.got.map(({ body }) => body).join('\n')).not.toContain('s3cr3t');
    expect(receiver.got.filter(({ body }) => body.includes(theirs.id))).toEqual([]);
  });

  it('gets plans that wait, and runs that were canceled or discarded', async () => {
    const clusterId = await cluster();
    const { id } = await apply(clusterId, {}, { auto_apply: false });
    await expect.poll(() => typesOf(id), { timeout: 20_000 }).toEqual(['run.needs_confirmation']);
    const { confirm_by } = await ask(`/v1/runs/${id}`);
    expect(eventsOf(id)[0].data).toMatchObject({ status: 'PLANNED', confirm_by, plan: { add: 1 } });
    const waiting = await apply(clusterId);
    await post(`/v1/runs/${waiting.id}/cancel`);
    await post(`/v1/runs/${id}/discard`);
    await expect.poll(() => typesOf(id)).toEqual(['run.needs_confirmation', 'run.canceled']);
    await expect.poll(() => eventsOf(waiting.id).map(({ data }) => data.status)).toEqual(['CANCELED']);
    expect(eventsOf(id)[1].data).toMatchObject({ status: 'DISCARDED', confirm_by: null });
  });
});
