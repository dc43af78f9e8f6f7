import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LocalReceiver, startLocalReceiver } from '#test/alerts/local-receiver.ts';
import { verified } from '#test/alerts/receiver.ts';
import { say } from '#test/cli/in-process.ts';
import { type Body, eventually, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { makePerson, signInPerson } from '#test/portal/visitor.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { runPauseMs, useRunsFolder } from '#test/runs-folder.ts';

/** The expiry of runs, in the API, the portal and the command line, of a gateway whose jobs run. */

const newRunsFolder = useRunsFolder();
let receiver: LocalReceiver;
const bench = useInference(async () => {
  receiver = await startLocalReceiver();
  return { engines: {}, env: { HEADGATE_RUNS_DIR: await newRunsFolder(), HEADGATE_WEBHOOK_HOSTS: receiver.host } };
});
afterAll(() => receiver.close());

let mine = { id: '', key: '' };
let count = 0;
const request = (path: string, options: object = {}): Promise<Response> =>
  bench.gateway.request(path, { key: mine.key, ...options });
const ask = async (path: string, options: object = {}): Promise<Body> =>
  JSON.parse(await (await request(path, options)).text());
const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
async function cluster(): Promise<string> {
  const body = { name: `expiry-${(count += 1)}`, organization_id: mine.id, nodes };
  return (await ask('/v1/clusters', { body, key: bench.gateway.key })).id;
}
const apply = (cluster_id: string, more: object = {}): Promise<Body> =>
  ask('/v1/stacks/expiring/apply', { body: { cluster_id, ...more } });
const patch = (id: string, body: object, key = mine.key): Promise<Response> =>
  request(`/v1/runs/${id}`, { method: 'PATCH', body, key });
const ended = (id: string): Promise<Body> =>
  eventually(async () => {
    const run = await ask(`/v1/runs/${id}`);
    return run.ended_at === null ? null : run;
  }, runPauseMs);
const inSeconds = (seconds: number): string => new Date(Date.now() + seconds * 1000).toISOString();

beforeAll(async () => {
  mine = await openOrganization(bench.gateway, '5');
  const form = new FormData();
  const module = 'resource "terraform_data" "a" {}\n';
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module }))], 'x.zip'));
  form.append('name', 'expiring');
  const headers = { authorization: `Bearer ${bench.gateway.key}` };
  await fetch(new URL('/v1/stacks', bench.gateway.url), { method: 'POST', headers, body: form });
});

describe('a run with expires_after', () => {
  it('shows its life, and the expiry once it is applied, everywhere', async () => {
    const clusterId = await cluster();
    const started = await apply(clusterId, { expires_after: 86_400 });
    expect(started).toMatchObject({ expires_after: 86_400, expires_at: null });
    const run = await ended(started.id);
    const expiresAt = new Date(Date.parse(run.ended_at) + 86_400_000).toISOString();
    expect(run.expires_at).toBe(expiresAt);
    const [listed] = (await ask(`/v1/runs?cluster_id=${clusterId}`)).data;
    expect(listed.expires_at).toBe(expiresAt);
    const shown = expiresAt.slice(0, 16).replace('T', ' ');
    const server = { url: bench.gateway.url, key: mine.key };
    expect((await say(['runs', 'ls', '--cluster', clusterId], server)).stdout).toContain(shown);
    const { email } = await makePerson(bench.gateway, { role: 'member' }, mine.key);
    const visitor = await signInPerson(bench.gateway, email);
    for (const path of [
      `/portal/runs/${run.id}`,
      `/portal/runs?cluster_id=${clusterId}`,
      `/portal/runs/${run.id}/expiry`,
    ])
      expect((await visitor.get(path)).text).toContain(expiresAt.slice(0, 10));
  });

  it.each([
    [{ expires_after: 59 }, 'must be at least 60 seconds'],
    [{ expires_after: 315_360_001 }, 'must be at most 315360000 seconds'],
    [{ expires_after: 60.5 }, 'expires_after'],
    [{ expires_after: '1d' }, 'expires_after'],
    [{ expires_after: 60, plan_only: true }, 'must not be set with plan_only'],
  ])('is rejected: %j', async (more, message) => {
    const body = { cluster_id: await cluster(), ...more };
    const response = await request('/v1/stacks/expiring/apply', { body });
    expect([response.status, await response.text()]).toEqual([400, expect.stringContaining(message)]);
  });

  it('is announced, then destroyed by Headgate itself, and the author of the run need not exist', async () => {
    const { secret } = await ask('/v1/webhooks', { body: { url: receiver.url } });
    const { id: userId, email } = await makePerson(bench.gateway, { role: 'member' }, mine.key);
    const visitor = await signInPerson(bench.gateway, email);
    const fields = { cluster_id: await cluster(), node: '', access: '', life: '3600' };
    const refused = await visitor.post('/portal/stacks/expiring/apply', { ...fields, life: '5h' });
    expect([refused.status, refused.text]).toEqual([400, expect.stringContaining('The life')]);
    const sent = await visitor.post('/portal/stacks/expiring/apply', fields);
    const id = /run_[0-9a-f]{32}/.exec(String(sent.headers.location))?.[0] ?? sent.text;
    expect(await ended(id)).toMatchObject({ expires_after: 3600, created_by: userId });
    expect((await request(`/v1/users/${userId}`, { method: 'DELETE' })).ok).toBe(true);
    expect((await patch(id, { expires_at: inSeconds(2) })).status).toBe(200);
    const events = (): Body[] =>
      receiver.got.map((got): Body => verified(secret, got)).filter(({ data }) => data.stack === 'expiring');
    const destroyed = await eventually(async () => {
      const { data } = await ask(`/v1/runs?cluster_id=${fields.cluster_id}`);
      return data.find(({ status }: Body) => status === 'DESTROYED') ?? null;
    });
    expect(destroyed).toMatchObject({ created_via: 'expiry', created_by: null, operation: 'destroy' });
    expect(await ask(`/v1/runs/${id}`)).toMatchObject({ status: 'SUPERSEDED', expires_at: null });
    await expect
      .poll(() => events().map(({ type, data }) => `${type} ${data.run_id}`))
      .toContain(`run.succeeded ${destroyed.id}`);
    const [announced, ...others] = events().filter(({ type }) => type === 'run.expiring');
    expect([announced?.data.run_id, others]).toEqual([id, []]);
    const own = await signInPerson(
      bench.gateway,
      (await makePerson(bench.gateway, { role: 'member' }, mine.key)).email,
    );
    expect((await own.get(`/portal/runs/${destroyed.id}`)).text).toContain('because it expired');
  }, 60_000);
});

describe('the expiry of a run', () => {
  it('is changed and removed by the API, the command line and the portal, and audited', async () => {
    const { id } = await ended((await apply(await cluster())).id);
    const at = inSeconds(7200);
    const changed = await patch(id, { expires_at: at });
    expect([changed.status, await changed.json()]).toMatchObject([200, { expires_at: at, expires_after: null }]);
    const server = { url: bench.gateway.url, key: mine.key };
    const words = ['stacks', 'apply', 'expiring', '--cluster', await cluster(), '--expires-after'];
    expect(JSON.parse((await say([...words, '2h', '--json'], server)).stdout).expires_after).toBe(7200);
    expect(await say([...words, 'soon'], server)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('duration'),
    });
    const told = await say(['runs', 'expiry', id, '--in', '3d'], server);
    expect(told.stdout).toContain(`expires at ${inSeconds(3 * 86_400).slice(0, 10)}`);
    expect(await say(['runs', 'expiry', id, '--in', '3d', '--never'], server)).toMatchObject({ code: 2 });
    expect(await say(['runs', 'expiry', id, '--in', '999999999d'], server)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--in must be at most 3650d'),
    });
    const { email } = await makePerson(bench.gateway, { role: 'member' }, mine.key);
    const visitor = await signInPerson(bench.gateway, email);
    await visitor.post(`/portal/runs/${id}/expiry`, { life: '3600' });
    const { expires_at: soon } = await ask(`/v1/runs/${id}`);
    expect(Date.parse(soon)).toBeLessThan(Date.now() + 3_601_000);
    for (const life of [{}, { life: '5' }, { life: 'soon' }]) {
      expect([life, (await visitor.post(`/portal/runs/${id}/expiry`, life)).status]).toEqual([life, 400]);
    }
    expect((await ask(`/v1/runs/${id}`)).expires_at).toBe(soon);
    await say(['runs', 'expiry', id, '--never'], server);
    expect((await ask(`/v1/runs/${id}`)).expires_at).toBeNull();
    const { data } = await ask('/v1/audit?limit=100');
    const audited = data.filter(
      ({ action, target_id: target }: Body) => action === 'run.expiry_changed' && target === id,
    );
    expect(audited).toHaveLength(4);
    expect(audited.at(-1).after.expires_at).toBe(at);
  });

  it('is rejected in the past, for others, for who may not destroy, and for runs that are not applied', async () => {
    const { id } = await ended((await apply(await cluster())).id);
    for (const expires_at of [inSeconds(-1), inSeconds(315_460_000), 'tomorrow', 5])
      expect([expires_at, (await patch(id, { expires_at })).status]).toEqual([expires_at, 400]);
    expect((await patch(id, {})).status).toBe(400);
    const theirs = await openOrganization(bench.gateway, '5');
    expect((await patch(id, { expires_at: null }, theirs.key)).status).toBe(404);
    const { secret } = await ask('/v1/keys', { body: { name: 'inference', scope: 'inference' } });
    expect((await patch(id, { expires_at: null }, secret)).status).toBe(403);
    const waiting = await apply(await cluster(), { auto_apply: false, expires_after: 3600 });
    const refused = await patch(waiting.id, { expires_at: null });
    expect([refused.status, await refused.text()]).toEqual([409, expect.stringContaining('The run is ')]);
    await request(`/v1/runs/${waiting.id}/cancel`, { method: 'POST' });
  });
});
