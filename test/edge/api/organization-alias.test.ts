import { beforeAll, describe, expect, it } from 'vitest';
import { type Body, openOrganization, useInference } from '#test/inference/inference-gateway.ts';

/** `org`, the former name of `organization_id` in queries. */

const bench = useInference(() => ({ engines: {}, env: { HEADGATE_TERRAFORM_BIN: '/nonexistent/terraform' } }));
let one = { id: '', key: '' };
let other = { id: '', key: '' };

async function ask(path: string, options: object = {}): Promise<{ status: number; body: Body }> {
  const answer = await bench.gateway.request(path, options);
  return { status: answer.status, body: JSON.parse((await answer.text()) || 'null') };
}

beforeAll(async () => {
  one = await openOrganization(bench.gateway, '5');
  other = await openOrganization(bench.gateway, '5');
  for (const { id } of [one, other]) await ask('/v1/clusters', { body: { name: 'lab', organization_id: id } });
});

describe('the alias org', () => {
  it.each(['/v1/clusters', '/v1/runs', '/v1/keys', '/v1/audit', '/v1/wallet'])(
    'names the organization of %s',
    async (path) => {
      const answers = await Promise.all(['organization_id', 'org'].map((name) => ask(`${path}?${name}=${one.id}`)));
      expect(answers[0]?.status).toBe(200);
      expect(answers[1]).toEqual(answers[0]);
      const both = await ask(`${path}?org=${one.id}&organization_id=${one.id}`);
      expect(both).toEqual(answers[0]);
    },
  );

  it.each([
    (id: string) => `org=${id}&organization_id=${other.id}`,
    (id: string) => `org=${id}&org=${other.id}`,
    (id: string) => `org=&organization_id=${id}`,
    (id: string) => `organization_id=${id}&organization_id=${other.id}`,
    (id: string) => `organization_id=&organization_id=${id}`,
    (id: string) => `org[]=${id}`,
    (id: string) => `org%5B%5D=${id}`,
  ])('is rejected with two values, or in another form', async (query) => {
    for (const path of ['/v1/clusters', '/v1/runs', '/v1/keys']) {
      const answer = await ask(`${path}?${query(one.id)}`);
      expect([path, answer.status]).toEqual([path, 400]);
    }
  });

  it.each(['org=', 'organization_id=', 'org'])('names no organization as %s', async (query) => {
    expect((await ask(`/v1/runs?${query}`)).status).toBe(404);
  });

  it('names another organization to nobody else, and works beside a body', async () => {
    expect((await ask(`/v1/runs?org=${other.id}`, { key: one.key })).status).toBe(404);
    expect((await ask(`/v1/runs?org=${one.id}`, { key: one.key })).status).toBe(200);
    const made = await ask(`/v1/keys?org=${one.id}`, { body: { name: 'beside a body', scope: 'inference' } });
    const named = await ask(`/v1/keys?organization_id=${one.id}`, {
      body: { name: 'beside a body', scope: 'inference' },
    });
    expect([made.status, made.body.organization_id]).toEqual([named.status, named.body.organization_id]);
  });
});
