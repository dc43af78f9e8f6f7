import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { framesOf } from '#test/inference/inference-gateway.ts';
import { adminKey, type Cluster, startCluster } from '#test/redis/gateway-cluster.ts';

/** Changes by one gateway while the other cannot be notified of them. */

let cluster: Cluster;
beforeAll(async () => {
  cluster = await startCluster({ count: 2 });
});
afterAll(() => cluster.stop());

let frozen: number | null = null;
afterEach(thaw);

function freeze(pid: number | null | undefined): void {
  frozen = pid ?? 0;
  process.kill(frozen, 'SIGSTOP');
}

function thaw(): void {
  if (frozen !== null) process.kill(frozen, 'SIGCONT');
  frozen = null;
}

async function statusOf(asked: Promise<Response>): Promise<number> {
  const answer = await asked;
  await answer.text();
  return answer.status;
}

const change = (method: string, path: string, body?: object, key = adminKey): Promise<number> =>
  statusOf(cluster.ask(0, path, { method, key, ...(body !== undefined && { body }) }));

/** A tenant whose key both gateways know. */
async function tenant() {
  const owner = await cluster.organization('5');
  const { id, secret } = await cluster.key({}, owner.key);
  for (const which of [0, 1]) expect(await statusOf(cluster.chat(which, secret))).toBe(200);
  return { owner, id, secret };
}

const stream = { stream: true, max_tokens: 8000, ignore_eos: true, standin: { tpot_ms: 20 } };

/** The end of a stream of the other gateway; without an end the engine would make 8,000 frames. */
async function endOf(answer: Response): Promise<unknown> {
  return framesOf(await answer.text()).at(-2);
}

describe('a change while Redis is frozen', () => {
  it('suspends an organization everywhere before PATCH answers, and its streams end', async () => {
    const { owner, secret } = await tenant();
    const ended = endOf(await cluster.chat(1, secret, stream));
    freeze(cluster.redis.pid);
    expect(await change('PATCH', `/v1/organizations/${owner.id}`, { status: 'suspended' })).toBe(200);
    expect(await statusOf(cluster.chat(1, secret))).toBe(403);
    expect(await ended).toMatchObject({ error: { code: 'organization_suspended' } });
  });

  it("rejects a revoked key and a closed organization's key everywhere, and their streams end", async () => {
    const [one, other] = [await tenant(), await tenant()];
    const ended = [one, other].map(async ({ secret }) => endOf(await cluster.chat(1, secret, stream)));
    freeze(cluster.redis.pid);
    expect(await change('DELETE', `/v1/keys/${one.id}`, undefined, one.owner.key)).toBe(200);
    expect(await statusOf(cluster.chat(1, one.secret))).toBe(401);
    expect(await change('DELETE', `/v1/organizations/${other.owner.id}`)).toBe(200);
    expect(await statusOf(cluster.chat(1, other.secret))).toBe(401);
    for (const end of await Promise.all(ended)) expect(end).toMatchObject({ error: { code: 'unauthorized' } });
  });

  it('removes models from an organization and a key everywhere', async () => {
    const { owner, id, secret } = await tenant();
    // A list of the deleted model: the file that named it may have been removed since.
    const gone = JSON.stringify(['gone']);
    freeze(cluster.redis.pid);
    await cluster.sql`update organizations set models = ${gone}::text::jsonb where id = ${owner.id.replace('org_', '')}`;
    expect(await change('PATCH', `/v1/organizations/${owner.id}`, { name: 'limited' })).toBe(200);
    expect(await statusOf(cluster.chat(1, secret))).toBe(400);
    expect(await change('PATCH', `/v1/organizations/${owner.id}`, { models: null })).toBe(200);
    expect(await statusOf(cluster.chat(1, secret))).toBe(200);
    await cluster.sql`update api_keys set models = ${gone}::text::jsonb where id = ${id.replace('key_', '')}`;
    expect(await change('PATCH', `/v1/keys/${id}`, { name: 'limited' }, owner.key)).toBe(200);
    expect(await statusOf(cluster.chat(1, secret))).toBe(400);
  });
});

describe('a gateway that was frozen', () => {
  it('rejects an organization that was suspended meanwhile', async () => {
    const { owner, secret } = await tenant();
    for (let time = 0; time < 3; time += 1) {
      freeze(cluster.gateways[1]?.pid);
      expect(await change('PATCH', `/v1/organizations/${owner.id}`, { status: 'suspended' })).toBe(200);
      const asked = Array.from({ length: 8 }, () => statusOf(cluster.chat(1, secret)));
      thaw();
      expect(await Promise.all(asked)).toEqual(Array(8).fill(403));
      expect(await change('PATCH', `/v1/organizations/${owner.id}`, { status: 'active' })).toBe(200);
      expect(await statusOf(cluster.chat(1, secret))).toBe(200);
    }
  });
});
