import { afterAll, beforeAll, expect, it } from 'vitest';
import { formatId, parseId, uuidv7 } from '#base/id.ts';
import { say } from '#test/cli/in-process.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** Texts about a run that a later one has overtaken, before and after somebody forgets it. */

let gateway: TestGateway;
let admin: Visitor;
let clusterId = '';
let organizationId = '';

beforeAll(async () => {
  gateway = await startGateway({ env: { HEADGATE_TERRAFORM_BIN: '/nowhere/terraform' } });
  admin = await signInVisitor(gateway);
  const organizations = (await (await gateway.request('/v1/organizations')).json()) as { data: { id: string }[] };
  organizationId = organizations.data[0]?.id ?? '';
  const body = { name: 'research', organization_id: organizationId };
  const answer = await gateway.request('/v1/clusters', { body });
  clusterId = ((await answer.json()) as { id: string }).id;
});
afterAll(() => gateway.stop());

/** Two runs of one installation: the first was given up with its machine, the state on record is the second's. */
async function overtake(stack: string): Promise<{ readonly lost: string; readonly later: string }> {
  const { sql } = gateway.db;
  const [installation, lost, later] = [uuidv7(), uuidv7(), uuidv7()];
  const [cluster, owner] = [parseId('cluster', clusterId), parseId('org', organizationId)];
  await sql`
    insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
    values (${installation}, ${cluster}, ${uuidv7()}, ${stack}, '', now())`;
  for (const [id, status, code] of [
    [lost, 'FAILED', 'INTERRUPTED'],
    [later, 'APPLIED', null],
  ] as const) {
    await sql`
      insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
        created_at, ended_at, failure_code, holds_version)
      values (${id}, ${installation}, ${cluster}, ${owner}, ${uuidv7()}, 'apply', ${status}, '', now(), now(), ${code},
        false)`;
  }
  await sql`
    insert into stack_states (installation_id, serial, lineage, run_id, resources, state, created_at)
    values (${installation}, 1, 'one', ${later}, 1, '', now())`;
  return { lost: formatId('run', lost), later: formatId('run', later) };
}

const kept = async (): Promise<number> => (await gateway.db.sql`select 1 from stack_states`).length;
const shown = async (id: string): Promise<unknown> => (await gateway.request(`/v1/runs/${id}`)).json();

it("shows for a superseded failed run what forgetting it drops, without the later run's resources", async () => {
  const { lost, later } = await overtake('queue');
  expect(await shown(lost)).toMatchObject({ failure_code: 'INTERRUPTED', overtaken: true });
  expect(await shown(later)).toMatchObject({ status: 'APPLIED', overtaken: false });

  const place = { url: gateway.url, key: gateway.key };
  expect((await say(['runs', 'forget', lost], place)).stderr).toContain(
    'Only the record of its own leftovers is dropped. Resources of later runs of the stack "queue" on research stay on record.',
  );
  expect((await say(['runs', 'forget', later], place)).stderr).toContain('and Headgate can no longer remove them');

  expect((await admin.get(`/portal/runs/${later}/forget`)).text).toContain('Forget resources of queue');
  const page = await admin.get(`/portal/runs/${lost}/forget`);
  expect(page.text).toContain('Forget resources of this run');
  expect(page.text).not.toContain('Headgate can no longer destroy them');
  const forgotten = await admin.post(`/portal/runs/${lost}/forget`);
  expect([forgotten.status, forgotten.headers.location]).toEqual([303, `/portal/runs/${lost}?notice=forgotten`]);
  expect(await kept()).toBe(1);
  expect(await shown(later)).toMatchObject({ status: 'APPLIED' });

  // The state of the last run is all that is known of any of them.
  expect((await gateway.request(`/v1/runs/${later}/forget`, { method: 'POST' })).status).toBe(200);
  expect(await kept()).toBe(0);
  expect(await shown(later)).toMatchObject({ status: 'SUPERSEDED' });
  expect(await shown(lost)).toMatchObject({ overtaken: false });
});

it('leaves the costs of the stack with it when a superseded failed run is forgotten', async () => {
  const { lost } = await overtake('costly');
  const path = `/v1/clusters/${clusterId}/nodes`;
  await gateway.request(path, { body: { name: 'n', address: '10.9.8.7', hardware_profile: 'h100' } });
  expect((await gateway.request(`${path}/n/allocate`, { body: {} })).status).toBe(200);
  expect((await gateway.request(`/v1/runs/${lost}/forget`, { method: 'POST' })).status).toBe(200);
  const from = Date.now();
  const ends = [from, from + 86_400_000].map((ms) => new Date(ms).toISOString());
  const series = `/v1/billing/costs/series?from=${ends[0]}&to=${ends[1]}&group_by=stack`;
  const groups = async (): Promise<(string | null)[]> => {
    const { groups: found } = (await (await gateway.request(series)).json()) as { groups: { value: string | null }[] };
    return found.map(({ value }) => value);
  };
  await expect.poll(groups).not.toEqual([]);
  expect(await groups()).toEqual(['costly']);
});
