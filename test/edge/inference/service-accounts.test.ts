import { beforeAll, describe, expect, it } from 'vitest';
import {
  type Body,
  errorOf,
  framesOf,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** Requests to models by the keys of service accounts. */

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));
const slow = { stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 20 } };

let owner = { id: '', key: '' };
beforeAll(async () => {
  owner = await openOrganization(bench.gateway, '5');
});

const asOwner = async (path: string, method: 'GET' | 'POST' | 'DELETE', body?: object): Promise<Body> => {
  const asked = { method, key: owner.key, ...(body !== undefined && { body }) };
  const answer = await bench.gateway.request(path, asked);
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};

interface Account {
  readonly path: string;
  readonly projectId: string;
  readonly id: string;
  readonly secret: string;
  readonly keyId: string;
}

async function account(): Promise<Account> {
  const { id: projectId } = await asOwner('/v1/projects', 'POST', { name: crypto.randomUUID() });
  const path = `/v1/organization/projects/${projectId}/service_accounts`;
  const { id, api_key: made } = await asOwner(path, 'POST', { name: 'nightly' });
  return { path: `${path}/${id}`, projectId, id, secret: made.value, keyId: made.id };
}

describe('a request of a service account', () => {
  it('is rejected for another project of the organization, before it costs anything', async () => {
    const { secret, projectId } = await account();
    const { projectId: other } = await account();
    const answer = await bench.chat({}, { key: secret, headers: { 'x-project-id': other } });
    expect(await errorOf(answer)).toMatchObject({ status: 400, param: 'X-Project-ID' });
    const own = await bench.chat({}, { key: secret, headers: { 'x-project-id': projectId } });
    expect(own.status).toBe(200);
  });

  it("ends within a second of its account's deletion or project's archiving, billed until then", async () => {
    const ends = [
      ({ path }: Account) => asOwner(path, 'DELETE'),
      ({ projectId }: Account) => asOwner(`/v1/organization/projects/${projectId}/archive`, 'POST'),
    ];
    for (const end of ends) {
      const one = await account();
      const stream = await bench.chat(slow, { key: one.secret });
      const text = stream.text();
      await end(one);
      expect(await errorOf(await bench.chat({}, { key: one.secret }))).toMatchObject({
        status: 401,
        code: 'unauthorized',
      });
      expect(framesOf(await text).at(-2)).toMatchObject({ error: { code: 'unauthorized' } });
      // The engine makes 50 in a second.
      expect(framesOf(await text).length).toBeLessThan(150);
      const record = await bench.recordOf(stream, owner.key);
      expect(record).toMatchObject({ reason: 'unauthorized', key_id: one.keyId, project_id: one.projectId });
    }
  });

  it("appears in the usage and costs of its key, and the account's deletion of its content is audited", async () => {
    const { secret, keyId, projectId, id } = await account();
    const change = { method: 'PATCH', key: owner.key, body: { store_requests: true } };
    expect((await bench.gateway.request(`/v1/keys/${keyId}`, change)).status).toBe(200);
    const answer = await bench.chat({}, { key: secret });
    await answer.text();
    const record = await bench.recordOf(answer, secret);
    const start = Math.floor(Date.now() / 1000) - 86_400;
    const query = `start_time=${start}&group_by[]=api_key_id&group_by[]=project_id&api_key_ids[]=${keyId}`;
    const resultsOf = async (path: string): Promise<Body> =>
      (await asOwner(`/v1/organization/${path}?${query}`, 'GET')).data.flatMap(({ results }: Body) => results);
    const group = { api_key_id: keyId, project_id: projectId };
    expect(await resultsOf('usage/completions')).toMatchObject([{ ...group, num_model_requests: 1 }]);
    expect(await resultsOf('costs')).toMatchObject([{ ...group, amount: { value: Number(record.cost) } }]);
    const { data } = await asOwner(
      `/v1/usage/summary?from=2026-01-01&group_by=key_id,project_id&key_id=${keyId}`,
      'GET',
    );
    expect(data).toMatchObject([{ key_id: keyId, project_id: projectId, num_model_requests: 1, cost: record.cost }]);
    const content = `/v1/usage/requests/${record.id}/content`;
    const deleted = await bench.gateway.request(content, { method: 'DELETE', key: secret });
    expect(deleted.ok).toBe(true);
    const { data: audit } = await asOwner(`/v1/audit?actor_id=${id}`, 'GET');
    const actor = { type: 'key', id: keyId, user_id: null, service_account_id: id };
    expect(audit).toMatchObject([{ action: 'usage_content.deleted', actor }]);
  });
});
