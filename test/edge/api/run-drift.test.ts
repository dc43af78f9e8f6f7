import { beforeAll, describe, expect, it } from 'vitest';
import { parseId } from '#base/id.ts';
import { say } from '#test/cli/in-process.ts';
import { type Body, eventually, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { makePerson, signInPerson } from '#test/portal/visitor.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { runPauseMs, useRunsFolder } from '#test/runs-folder.ts';

/**
 * Drift checks in the API, the portal and the command line. Drift appears by changing what a check has counted: the suite
 * `terraform` has resources that drift.
 */

const newRunsFolder = useRunsFolder();
const bench = useInference(async () => {
  return { engines: {}, env: { HEADGATE_RUNS_DIR: await newRunsFolder() } };
});

let mine = { id: '', key: '' };
let count = 0;
const request = (path: string, options: object = {}): Promise<Response> =>
  bench.gateway.request(path, { key: mine.key, ...options });
const ask = async (path: string, options: object = {}): Promise<Body> =>
  JSON.parse(await (await request(path, options)).text());
const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
async function cluster(): Promise<string> {
  const body = { name: `drift-${(count += 1)}`, organization_id: mine.id, nodes };
  return (await ask('/v1/clusters', { body, key: bench.gateway.key })).id;
}
const apply = (cluster_id: string, more: object = {}): Promise<Body> =>
  ask('/v1/stacks/drifting/apply', { body: { cluster_id, ...more } });
const patch = (id: string, body: object): Promise<Response> => request(`/v1/runs/${id}`, { method: 'PATCH', body });
const check = (id: string, key = mine.key): Promise<Response> =>
  request(`/v1/runs/${id}/drift-check`, { method: 'POST', key });
const ended = (id: string): Promise<Body> =>
  eventually(async () => {
    const run = await ask(`/v1/runs/${id}`);
    return run.ended_at === null ? null : run;
  }, runPauseMs);
const applied = async (more: object = {}): Promise<Body> => ended((await apply(await cluster(), more)).id);
/** Checks a run, and lets the check have counted a changed and a deleted resource. */
async function drifted(id: string): Promise<Body> {
  const done = await ended(((await (await check(id)).json()) as Body).id);
  const counts = JSON.stringify({ operation: 'plan', add: 0, change: 1, remove: 1 });
  await bench.gateway.db.sql`
    update runs set planned = ${counts}::text::jsonb, changes = ${counts}::text::jsonb where id = ${parseId('run', done.id)}`;
  return done;
}
async function newVisitor() {
  const { email } = await makePerson(bench.gateway, { role: 'member' }, mine.key);
  return signInPerson(bench.gateway, email);
}
const server = () => ({ url: bench.gateway.url, key: mine.key });

beforeAll(async () => {
  mine = await openOrganization(bench.gateway, '5');
  const form = new FormData();
  const module = 'resource "terraform_data" "a" {}\n';
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module }))], 'x.zip'));
  form.append('name', 'drifting');
  const headers = { authorization: `Bearer ${bench.gateway.key}` };
  await fetch(new URL('/v1/stacks', bench.gateway.url), { method: 'POST', headers, body: form });
});

describe('a drift check', () => {
  it('is a run of its own, and its result is shown at the applied run', async () => {
    const run = await applied();
    expect(run).toMatchObject({ check_drift: true, drift: null, drift_check_of: null });
    const answer = await check(run.id);
    const started = (await answer.json()) as Body;
    expect([answer.status, answer.headers.get('location')]).toEqual([202, `/v1/runs/${started.id}`]);
    expect(started).toMatchObject({ drift_check_of: run.id, plan_only: true, auto_apply: false, created_via: 'api' });
    const done = await ended(started.id);
    expect(done).toMatchObject({ status: 'PLANNED_AND_FINISHED', plan: { add: 0, change: 0, remove: 0 } });
    expect(await ask(`/v1/runs/${run.id}`)).toMatchObject({
      status: 'APPLIED',
      drift: {
        status: 'none',
        checked_at: done.ended_at,
        check_run_id: done.id,
        changed: 0,
        deleted: 0,
        pending_run_id: null,
        failed_run_id: null,
      },
    });
    const idsOf = async (query: string): Promise<string[]> =>
      (await ask(`/v1/runs?cluster_id=${run.cluster_id}${query}`)).data.map(({ id }: Body) => id);
    expect(await idsOf('')).toEqual([run.id]);
    expect(await idsOf('&drift_checks=false')).toEqual([run.id]);
    expect(await idsOf('&drift_checks=true')).toEqual([done.id]);
    expect((await request('/v1/runs?drift_checks=maybe')).status).toBe(400);
    const { data } = await ask('/v1/audit?limit=100');
    const audited = data.find(({ target_id: target }: Body) => target === done.id);
    expect(audited).toMatchObject({ action: 'run.created', after: { drift_check_of: run.id } });
  });

  it('is returned again for the same Idempotency-Key', async () => {
    const run = await applied();
    const headers = { 'idempotency-key': 'once' };
    const once = (): Promise<Body> => ask(`/v1/runs/${run.id}/drift-check`, { method: 'POST', headers });
    const { id } = await once();
    await ended(id);
    expect((await once()).id).toBe(id);
  });

  it('returns 409 for runs that are not applied, and for other drift checks', async () => {
    const waiting = await apply(await cluster(), { auto_apply: false });
    const canceled = await ended((await ask(`/v1/runs/${waiting.id}/cancel`, { method: 'POST' })).id);
    const run = await applied();
    const done = await ended(((await (await check(run.id)).json()) as Body).id);
    const destroyed = await ended((await ask(`/v1/runs/${run.id}/destroy`, { method: 'POST' })).id);
    const messageOf = async (answer: Response): Promise<unknown[]> => [
      answer.status,
      ((await answer.json()) as Body).error.message,
    ];
    expect(await messageOf(await check(canceled.id))).toEqual([409, 'The run is CANCELED.']);
    expect(await messageOf(await check(run.id))).toEqual([409, 'The run is SUPERSEDED.']);
    expect(await messageOf(await check(destroyed.id))).toEqual([409, 'The run is DESTROYED.']);
    const own = [409, expect.stringContaining('drift_check_of')];
    expect(await messageOf(await check(done.id))).toEqual(own);
    for (const act of ['retry', 'destroy'])
      expect(await messageOf(await request(`/v1/runs/${done.id}/${act}`, { method: 'POST' }))).toEqual(own);
    expect((await request(`/v1/runs/${done.id}/confirm`, { method: 'POST' })).status).toBe(409);
  });

  it('is requested by whoever may destroy the run', async () => {
    const run = await applied();
    const theirs = await openOrganization(bench.gateway, '5');
    expect((await check(run.id, theirs.key)).status).toBe(404);
    const { secret } = await ask('/v1/keys', { body: { name: 'inference', scope: 'inference' } });
    expect((await check(run.id, secret)).status).toBe(403);
    const visitor = await newVisitor();
    expect((await visitor.post(`/portal/runs/${run.id}/drift-check`, {})).status).toBe(303);
    const restrict = (members_may_apply: boolean): Promise<Response> =>
      request(`/v1/organizations/${mine.id}`, { method: 'PATCH', body: { members_may_apply } });
    expect((await restrict(false)).status).toBe(200);
    expect((await visitor.post(`/portal/runs/${run.id}/drift-check`, {})).status).toBe(403);
    await restrict(true);
  });
});

describe('regular drift checks of a run', () => {
  it('are turned off and on by the API, the command line and the portal, and audited', async () => {
    const off = await applied({ check_drift: false });
    expect(off.check_drift).toBe(false);
    const checkDrift = async (): Promise<unknown> => (await ask(`/v1/runs/${off.id}`)).check_drift;
    const both = { check_drift: true, expires_at: new Date(Date.now() + 7_200_000).toISOString() };
    expect(await (await patch(off.id, both)).json()).toMatchObject(both);
    for (const body of [{}, { check_drift: 'yes' }, { check_drift: null }])
      expect([body, (await patch(off.id, body)).status]).toEqual([body, 400]);
    expect((await say(['runs', 'drift-check', off.id, 'off'], server())).stdout).toContain('not checked for drift');
    expect(await checkDrift()).toBe(false);
    await say(['runs', 'drift-check', off.id, 'on'], server());
    expect(await checkDrift()).toBe(true);
    expect(await say(['runs', 'drift-check', off.id, 'maybe'], server())).toMatchObject({ code: 2 });
    const visitor = await newVisitor();
    await visitor.post(`/portal/runs/${off.id}/drift-check?regular=off`, {});
    expect(await checkDrift()).toBe(false);
    expect((await visitor.get(`/portal/runs/${off.id}`)).text).toContain('Start regular checks');
    const { data } = await ask('/v1/audit?limit=100');
    const audited = data.filter(
      ({ action, target_id: target }: Body) => action === 'run.drift_check_changed' && target === off.id,
    );
    expect(audited.map(({ after }: Body) => after.check_drift)).toEqual([false, true, false, true]);
    const destroyed = await ended((await ask(`/v1/runs/${off.id}/destroy`, { method: 'POST' })).id);
    expect((await patch(destroyed.id, { check_drift: true })).status).toBe(409);
  });

  it('are turned off at the apply', async () => {
    const words = ['stacks', 'apply', 'drifting', '--cluster', await cluster(), '--no-drift-check', '--json'];
    expect(JSON.parse((await say(words, server())).stdout).check_drift).toBe(false);
    const visitor = await newVisitor();
    const fields = { cluster_id: await cluster(), node: '', access: '' };
    const sent = await visitor.post('/portal/stacks/drifting/apply', { ...fields, drift: 'off' });
    const id = /run_[0-9a-f]{32}/.exec(String(sent.headers.location))?.[0] ?? sent.text;
    expect(await ask(`/v1/runs/${id}`)).toMatchObject({ check_drift: false });
  });
});

describe('a run that has drifted', () => {
  it('is marked in lists and on its page, until a check finds no drift', async () => {
    const run = await applied();
    const done = await drifted(run.id);
    const visitor = await newVisitor();
    const texts = async (...paths: string[]): Promise<string[]> =>
      Promise.all(paths.map(async (path) => (await visitor.get(path)).text));
    const [page = '', list = '', checks = '', ofCheck = ''] = await texts(
      `/portal/runs/${run.id}`,
      `/portal/runs?cluster_id=${run.cluster_id}`,
      `/portal/runs?cluster_id=${run.cluster_id}&drift_checks=true`,
      `/portal/runs/${done.id}`,
    );
    expect(page).toContain('1 changed, 1 deleted');
    expect(page).toContain(`href="/portal/runs/${done.id}"`);
    for (const text of [page, list, checks, ofCheck]) expect(text).toContain('>drifted<');
    expect(list).not.toContain(done.id);
    expect(checks).toContain(done.id);
    expect(ofCheck).toContain('drifting (drift check)');
    expect(ofCheck).toContain(`href="/portal/runs/${run.id}"`);
    expect(ofCheck).not.toMatch(/\/(?:destroy|retry)"/);
    expect((await say(['runs', 'ls', '--cluster', run.cluster_id], server())).stdout).toContain('APPLIED DRIFTED');
    expect((await say(['runs', 'show', run.id], server())).stdout).toContain(done.id);
    expect((await say(['runs', 'ls', '--cluster', run.cluster_id, '--drift-checks'], server())).stdout).toContain(
      done.id,
    );
    await bench.gateway.db.sql`
      update runs set status = 'FAILED', failure_code = 'INTERRUPTED' where id = ${parseId('run', done.id)}`;
    const [failed = ''] = await texts(`/portal/runs/${done.id}`);
    expect(failed).toContain('check the applied run for drift again');
    const told = await say(['runs', 'drift-check', run.id, '--wait'], server());
    expect([told.code, told.stdout]).toEqual([0, expect.stringContaining('no drift')]);
    expect((await visitor.get(`/portal/runs/${run.id}`)).text).not.toContain('>drifted<');
  });
});
