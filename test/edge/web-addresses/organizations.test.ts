import { once } from 'node:events';
import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { uuidOf, useWebGateway } from '#test/web/web-gateway.ts';

/** Addresses that end, and those that go on, when an organization is suspended or closed. */

/** Where users of runs may pass, so that a stack could be applied. */
const runsDir = mkdtempSync(join(tmpdir(), 'hg-runs-'));
chmodSync(runsDir, 0o711);
afterAll(() => rmSync(runsDir, { recursive: true, force: true, maxRetries: 50, retryDelay: 100 }));

const web = useWebGateway({ HEADGATE_ALLOW_UNSANDBOXED_RUNS: 'true', HEADGATE_RUNS_DIR: runsDir });

interface Owner {
  readonly id: string;
  readonly key: string;
  readonly cluster: { readonly id: string };
}

async function newOwner(): Promise<Owner> {
  const { body } = await web.ask('/v1/organizations', { body: { name: `Owner ${Math.random()}` } });
  const cluster = await web.makeCluster({ organization_id: body.id });
  return { id: body.id, key: body.management_key, cluster };
}

const suspend = (owner: Owner, status = 'suspended') =>
  web.ask(`/v1/organizations/${owner.id}`, { method: 'PATCH', body: { status } });

const close = (owner: Owner) => web.ask(`/v1/organizations/${owner.id}`, { method: 'DELETE' });

describe('a web address', () => {
  it('closes its connections and returns 503 while its organization is suspended', async () => {
    const owner = await newOwner();
    const { host } = await web.exposed(await web.application(), { cluster: owner.cluster });
    const { socket } = await web.websocket(host);
    const ended = once(socket, 'close');
    expect((await suspend(owner)).status).toBe(200);
    // Nothing of it is left when the change is answered.
    expect(await web.get(host, '/')).toMatchObject({ status: 503, text: expect.stringContaining('Not available') });
    expect((await web.websocket(host)).status).toBe('503');
    await ended;
    expect((await suspend(owner, 'active')).status).toBe(200);
    expect(await web.get(host, '/back')).toMatchObject({ status: 200, text: 'says /back' });
  });

  it('returns 404 when its organization is closed', async () => {
    const owner = await newOwner();
    const { host } = await web.exposed(await web.application(), { cluster: owner.cluster });
    const { socket } = await web.websocket(host);
    const ended = once(socket, 'close');
    expect((await close(owner)).status).toBeLessThan(300);
    expect((await web.get(host, '/')).status).toBe(404);
    await ended;
  });
});

/** A run as it stands in the queue, behind one that goes on at a place that is not here. */
async function queued({ id, cluster }: Owner, status: 'APPLYING' | 'PENDING', operation = 'apply'): Promise<string> {
  const run = uuidv7();
  const { sql } = web.gateway.db;
  const installation = uuidv7();
  await sql`
    insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
    values (${installation}, ${uuidOf(cluster.id)}, ${uuidv7()}, 'web', '', now())`;
  await sql`
    insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
      created_at, place, lease_until)
    values (${run}, ${installation}, ${uuidOf(cluster.id)}, ${uuidOf(id)}, ${uuidv7()}, ${operation}, ${status}, '',
      now(), ${status === 'PENDING' ? null : 'elsewhere'}, ${status === 'PENDING' ? null : '2100-01-01'})`;
  return `run_${run.replaceAll('-', '')}`;
}

describe.each([
  ['suspended', (owner: Owner) => suspend(owner)],
  ['closed', close],
])('the run queue of an organization that is %s', (status, stop) => {
  it('ends waiting runs, continues the running one and a destroy, and applies nothing new', async () => {
    const owner = await newOwner();
    const [running, waiting, removing] = [
      await queued(owner, 'APPLYING'),
      await queued(owner, 'PENDING'),
      await queued(owner, 'PENDING', 'destroy'),
    ];
    const other = await newOwner();
    const [, others] = [await queued(other, 'APPLYING'), await queued(other, 'PENDING')];
    expect((await stop(owner)).status).toBeLessThan(300);
    expect((await web.ask(`/v1/runs/${waiting}`)).body).toMatchObject({
      status: 'FAILED',
      failure_code: 'ORGANIZATION_INACTIVE',
      failure_message: `the organization was ${status} before the run started`,
    });
    const statuses = [running, removing, others].map(async (id) => (await web.ask(`/v1/runs/${id}`)).body.status);
    expect(await Promise.all(statuses)).toEqual(['APPLYING', 'PENDING', 'PENDING']);
    const mine = await web.ask(`/v1/runs/${waiting}/retry`, { method: 'POST', key: owner.key });
    expect(mine.status).toBe(status === 'suspended' ? 403 : 401);
    const body = { cluster_id: owner.cluster.id, inputs: { folder: '/opt/queue' } };
    const refused = await web.ask('/v1/stacks/scheduler/apply', { body });
    expect([refused.status, refused.body.error]).toMatchObject([
      409,
      {
        message: `The organization of the cluster is ${status}, so stacks cannot be applied. Applied stacks can be destroyed.`,
      },
    ]);
  });
});
