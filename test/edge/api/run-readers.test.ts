import { beforeAll, describe, expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { dropOldLogs } from '#core/runs/lifecycle/old-logs.ts';
import { packOf } from '#test/stacks/raw-zip.ts';
import { type Body, eventually, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { runPauseMs, useRunsFolder } from '#test/runs-folder.ts';

/** Readers and authors of runs while keys are revoked and clusters go from one organization to another. */

const newRunsFolder = useRunsFolder();
const bench = useInference(async () => {
  return { engines: {}, env: { HEADGATE_RUNS_DIR: await newRunsFolder() } };
});

const module = `
  variable "seconds" { default = 0 }
  variable "constructor" { default = "made" }
  variable "things" {
    type    = any
    default = []
  }
  resource "terraform_data" "a" {
    provisioner "local-exec" { command = "echo begun; sleep $\{var.seconds}" }
  }
  output "made" { value = var.constructor }`;

const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
let mine = { id: '', key: '' };
let theirs = { id: '', key: '' };
let count = 0;

const ask = async (path: string, options: object = {}): Promise<{ status: number; body: Body }> => {
  const answer = await bench.gateway.request(path, options);
  const text = await answer.text();
  return { status: answer.status, body: text.startsWith('{') ? JSON.parse(text) : text };
};

async function cluster(): Promise<string> {
  const name = `readers-${(count += 1)}`;
  return (await ask('/v1/clusters', { body: { name, organization_id: mine.id, nodes } })).body.id;
}

const apply = (clusterId: string, inputs: object, key = mine.key) =>
  ask('/v1/stacks/readers/apply', { key, body: { cluster_id: clusterId, inputs } });

const ended = (id: string): Promise<Body> =>
  eventually(async () => {
    const { body } = await ask(`/v1/runs/${id}`);
    return body.ended_at === null ? null : body;
  }, runPauseMs);

/** A log that is read until somebody ends it. */
async function follow(id: string, key: string, headers: object = {}) {
  const leave = new AbortController();
  const answer = await fetch(new URL(`/v1/runs/${id}/logs`, bench.gateway.url), {
    signal: leave.signal,
    headers: { authorization: `Bearer ${key}`, accept: 'text/event-stream', ...headers },
  });
  const reader = answer.body?.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  const read = async (): Promise<boolean> => {
    const part = await reader?.read();
    text += part?.value ?? '';
    return part?.done !== false;
  };
  return {
    status: answer.status,
    leave: () => leave.abort(),
    async has(wanted: string): Promise<void> {
      while (!text.includes(wanted)) if (await read()) throw new Error(`it ended: ${text}`);
    },
    async toEnd(): Promise<string> {
      while (!(await read()));
      return text;
    },
  };
}

beforeAll(async () => {
  const { gateway } = bench;
  mine = await openOrganization(gateway, '5');
  theirs = await openOrganization(gateway, '5');
  const form = new FormData();
  form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module }))], 'readers.zip'));
  form.append('name', 'readers');
  const headers = { authorization: `Bearer ${gateway.key}` };
  const pushed = await fetch(new URL('/v1/stacks', gateway.url), { method: 'POST', headers, body: form });
  if (pushed.status !== 201) throw new Error(await pushed.text());
});

describe('a cluster moved to another organization', () => {
  it('takes its runs along: the former organization can neither see nor change them', async () => {
    const clusterId = await cluster();
    const { body: run } = await apply(clusterId, {});
    expect(await ended(run.id)).toMatchObject({ status: 'APPLIED' });
    const moved = await ask(`/v1/clusters/${clusterId}`, { method: 'PATCH', body: { organization_id: theirs.id } });
    expect(moved.status).toBe(200);
    for (const path of ['', '/logs']) {
      expect((await ask(`/v1/runs/${run.id}${path}`, { key: mine.key })).status).toBe(404);
      expect((await ask(`/v1/runs/${run.id}${path}`, { key: theirs.key })).status).toBe(200);
    }
    for (const action of ['cancel', 'retry', 'destroy']) {
      expect((await ask(`/v1/runs/${run.id}/${action}`, { key: mine.key, method: 'POST' })).status).toBe(404);
    }
    expect((await ask('/v1/runs', { key: mine.key })).body.data).toEqual([]);
    expect((await ask('/v1/runs', { key: theirs.key })).body).toMatchObject({ data: [{ id: run.id }] });
    const destroy = await ask(`/v1/runs/${run.id}/destroy`, { key: theirs.key, method: 'POST' });
    expect(destroy.body).toMatchObject({ operation: 'destroy', organization_id: theirs.id });
    expect(await ended(destroy.body.id)).toMatchObject({ status: 'DESTROYED' });
    const noted = await ask('/v1/audit?limit=100', { key: theirs.key });
    expect(noted.body.data.map(({ action, target_id }: Body) => [action, target_id])).toContainEqual([
      'run.created',
      destroy.body.id,
    ]);
  });

  it('returns 409 with the run while one is pending or running', async () => {
    const clusterId = await cluster();
    const { body: run } = await apply(clusterId, { seconds: 600 });
    const { body: next } = await apply(clusterId, {});
    const move = () => ask(`/v1/clusters/${clusterId}`, { method: 'PATCH', body: { organization_id: theirs.id } });
    const refused = await move();
    expect([refused.status, refused.body.error?.message]).toEqual([
      409,
      expect.stringContaining(`${run.id}, ${next.id}`),
    ]);
    expect((await ask(`/v1/clusters/${clusterId}`)).body.organization_id).toBe(mine.id);
    for (const { id } of [next, run]) await ask(`/v1/runs/${id}/cancel`, { key: mine.key, method: 'POST' });
    for (const { id } of [next, run]) expect(await ended(id)).toMatchObject({ status: 'CANCELED' });
    expect((await move()).status).toBe(200);
  });

  it('can leave a suspended organization', async () => {
    const closed = await openOrganization(bench.gateway, '5');
    const body = { name: 'left-behind', organization_id: closed.id, nodes };
    const { id } = (await ask('/v1/clusters', { body })).body;
    const status = { method: 'PATCH', body: { status: 'suspended' } };
    expect((await ask(`/v1/organizations/${closed.id}`, status)).status).toBe(200);
    const move = (to: string) => ask(`/v1/clusters/${id}`, { method: 'PATCH', body: { organization_id: to } });
    expect((await move(theirs.id)).status).toBe(200);
    expect((await move(closed.id)).status).toBe(409);
  });

  it('ends logs that the former organization is reading', async () => {
    const clusterId = await cluster();
    const { body: run } = await apply(clusterId, { seconds: 600 });
    const log = await follow(run.id, mine.key);
    await log.has('begun');
    // As a gateway of an older version moved it: a run under way holds its cluster otherwise.
    const db = connectDb(bench.gateway.databaseUrl, { poolMax: 1 });
    await db.sql`update clusters set organization_id = ${parseId('org', theirs.id)} where id = ${parseId('cluster', clusterId)}`;
    await db.close();
    expect(await log.toEnd()).toMatch(/event: error\ndata: {"code":"not_found"/);
    await ask(`/v1/runs/${run.id}/cancel`, { key: theirs.key, method: 'POST' });
    await ended(run.id);
  });
});

describe('a private stack of another user', () => {
  it('cannot be applied by a platform administrator, who sees only its metadata', async () => {
    const form = new FormData();
    form.append('file', new File([new Uint8Array(packOf({ 'main.tf': module }))], 'of-mine.zip'));
    const headers = { authorization: `Bearer ${mine.key}` };
    const pushed = await fetch(new URL('/v1/stacks', bench.gateway.url), { method: 'POST', headers, body: form });
    expect(pushed.status).toBe(201);
    const clusterId = await cluster();
    const body = { cluster_id: clusterId, inputs: {} };
    const status = async (key?: string) =>
      (await ask('/v1/stacks/of-mine/apply', { body, ...(key && { key }) })).status;
    expect([await status(), await status(theirs.key), await status(mine.key)]).toEqual([403, 404, 202]);
    await ended((await ask(`/v1/runs?cluster_id=${clusterId}`)).body.data[0].id);
  });

  it('is retried only by users who may apply it, and not with inputs from before a move', async () => {
    const clusterId = await cluster();
    const canceled = async (stack: string): Promise<string> => {
      const body = { cluster_id: clusterId, inputs: { seconds: 600 } };
      const run = (await ask(`/v1/stacks/${stack}/apply`, { key: mine.key, body })).body;
      await ask(`/v1/runs/${run.id}/cancel`, { key: mine.key, method: 'POST' });
      expect(await ended(run.id)).toMatchObject({ status: 'CANCELED' });
      return run.id;
    };
    const retried = async (id: string, key?: string): Promise<number> =>
      (await ask(`/v1/runs/${id}/retry`, { method: 'POST', ...(key && { key }) })).status;
    const [own, global] = [await canceled('of-mine'), await canceled('readers')];
    expect(await retried(own)).toBe(403);
    expect(await retried(own, mine.key)).toBe(202);
    const again = (await ask(`/v1/runs?cluster_id=${clusterId}`)).body.data[0].id;
    await ask(`/v1/runs/${again}/cancel`, { method: 'POST' });
    await ended(again);
    const moved = await ask(`/v1/clusters/${clusterId}`, { method: 'PATCH', body: { organization_id: theirs.id } });
    expect(moved.status).toBe(200);
    expect([await retried(own), await retried(own, theirs.key)]).toEqual([403, 404]);
    expect([await retried(global), await retried(global, theirs.key)]).toEqual([409, 409]);
    expect((await ask('/v1/runs?status=PENDING')).body.data).toEqual([]);
  });
});

describe('an archived cluster', () => {
  it('has no run that can be destroyed or retried', async () => {
    const clusterId = await cluster();
    const { body: run } = await apply(clusterId, {});
    await ended(run.id);
    await ask(`/v1/clusters/${clusterId}`, { method: 'DELETE' });
    const refused = await ask(`/v1/runs/${run.id}/destroy`, { key: mine.key, method: 'POST' });
    expect([refused.status, refused.body.error.message]).toEqual([409, 'The cluster was archived.']);
  });
});

describe('a followed run log', () => {
  it("ends when its key is revoked, and leaves the key's other requests running", async () => {
    const { body: made } = await ask('/v1/keys', { key: mine.key, body: { name: 'reader', scope: 'management' } });
    const { body: run } = await apply(await cluster(), { seconds: 600 });
    const logs = await Promise.all(Array.from({ length: 6 }, () => follow(run.id, made.secret)));
    for (const log of logs) await log.has('begun');
    expect((await ask(`/v1/runs/${run.id}`, { key: made.secret })).body).toMatchObject({ status: 'APPLYING' });
    expect((await ask(`/v1/keys/${made.id}`, { key: mine.key, method: 'DELETE' })).status).toBeLessThan(300);
    for (const log of logs) expect(await log.toEnd()).toMatch(/event: error\ndata: {"code":"unauthorized"/);
    await ask(`/v1/runs/${run.id}/cancel`, { key: mine.key, method: 'POST' });
    await ended(run.id);
  });

  it('is rejected when a key follows sixteen logs already', async () => {
    const { body: run } = await apply(await cluster(), { seconds: 600 });
    const logs = await Promise.all(Array.from({ length: 16 }, () => follow(run.id, bench.gateway.key)));
    expect(logs.map(({ status }) => status)).toEqual(logs.map(() => 200));
    const refused = await follow(run.id, bench.gateway.key);
    expect(refused.status).toBe(429);
    for (const log of logs) log.leave();
    await eventually(async () => {
      const again = await follow(run.id, bench.gateway.key);
      again.leave();
      return again.status === 200;
    });
    await ask(`/v1/runs/${run.id}/cancel`, { method: 'POST' });
    await ended(run.id);
  });

  it('reports that the log was removed, long after the run has ended', async () => {
    const [old, young] = [(await apply(await cluster(), {})).body, (await apply(await cluster(), {})).body];
    for (const { id } of [old, young]) await ended(id);
    const db = connectDb(bench.gateway.databaseUrl, { poolMax: 1 });
    const uuid = parseId('run', old.id) ?? '';
    // As if it had been made a hundred days ago.
    const before = uuidv7(Date.now() - 100 * 86_400_000);
    await db.sql.begin(async (tx) => {
      await tx`insert into runs select (r).* from (select jsonb_populate_record(runs, jsonb_build_object('id', ${before}::text,
        'ended_at', now() - interval '99 days')) as r from runs where id = ${uuid}) as copies`;
      await tx`update run_log set run_id = ${before} where run_id = ${uuid}`;
      await tx`delete from runs where id = ${uuid}`;
    });
    expect(await dropOldLogs(db.sql, Date.now())).toBe(1);
    expect(await dropOldLogs(db.sql, Date.now())).toBe(0);
    await db.close();
    const log = await ask(`/v1/runs/${formatId('run', before)}/logs`, { key: mine.key });
    expect(log.body).toEqual({ data: [], next_after: 0, expired: true, complete: true });
    const events = await (await follow(formatId('run', before), mine.key)).toEnd();
    expect(events).toContain('"log_expired":true');
    const kept = await ask(`/v1/runs/${young.id}/logs`, { key: mine.key });
    expect(kept.body).toMatchObject({ expired: false, complete: true });
    expect(kept.body.data.length).toBeGreaterThan(0);
  });

  it('starts at any Last-Event-ID', async () => {
    const { body: run } = await apply(await cluster(), {});
    const { log_lines: lines } = await ended(run.id);
    for (const last of ['9007199254740991', '-1', '1e3', 'x', '']) {
      const log = await follow(run.id, mine.key, { 'last-event-id': last });
      const text = await log.toEnd();
      expect([last, (text.match(/^id: /gm) ?? []).length]).toEqual([last, lines]);
      expect(text).toContain('event: status');
    }
  });
});

describe('stack inputs', () => {
  it('can have the names of object properties such as constructor', async () => {
    const { body: run } = await apply(await cluster(), {});
    expect(await ended(run.id)).toMatchObject({ outputs: { made: { value: 'made' } } });
  });
});
