import { expect, it } from 'vitest';
import { type Body, openOrganization, useInference } from '#test/inference/inference-gateway.ts';

const path = '/nonexistent/terraform';
const nodes = [{ name: 'n-1', address: '10.9.8.7', hardware_profile: 'h100' }];
const bench = useInference(() => Promise.resolve({ engines: {}, env: { HEADGATE_TERRAFORM_BIN: path } }));

async function ask(route: string, options: object = {}): Promise<{ status: number; body: Body }> {
  const answer = await bench.gateway.request(route, options);
  return { status: answer.status, body: await answer.json() };
}

it('names the missing program with its path to a platform administrator only', async () => {
  const { id, key } = await openOrganization(bench.gateway, '5');
  const { body: cluster } = await ask('/v1/clusters', { body: { name: 'own', organization_id: id, nodes } });
  const apply = { body: { cluster_id: cluster.id, inputs: { folder: '/tmp/x', slots: 1 } } };

  expect((await ask('/v1/runner')).body.problem).toContain(path);
  const refused = await ask('/v1/stacks/scheduler/apply', apply);
  expect([refused.status, refused.body.error.code], JSON.stringify(refused.body)).toEqual([503, 'RUNNER_UNAVAILABLE']);
  expect(refused.body.error.message).toContain(path);

  const { body: runner } = await ask('/v1/runner', { key });
  expect(runner).toEqual({ available: false, problem: expect.stringContaining('headgate doctor') });
  expect(runner.problem).not.toContain('/nonexistent');
  const theirs = await ask('/v1/stacks/scheduler/apply', { ...apply, key });
  expect([theirs.status, theirs.body.error.code]).toEqual([503, 'RUNNER_UNAVAILABLE']);
  expect(theirs.body.error.message).toBe(`Stacks cannot be applied: ${runner.problem}.`);
});
