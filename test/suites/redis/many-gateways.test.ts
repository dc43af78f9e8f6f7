import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Body, eventually, framesOf } from '#test/inference/inference-gateway.ts';
import { adminKey, startCluster, type Cluster } from '#test/redis/gateway-cluster.ts';

let cluster: Cluster;
beforeAll(async () => {
  const HEADGATE_PLATFORM_KEY = Buffer.alloc(32, 7).toString('base64');
  cluster = await startCluster({ count: 4, env: { HEADGATE_PLATFORM_KEY } });
  await Promise.all([0, 1, 2, 3].map((which) => cluster.chat(which, adminKey).then((answer) => answer.text())));
});
afterAll(() => cluster.stop());

/** How often each status came. */
function countBy(statuses: readonly number[]): Record<number, number> {
  const counts: Record<number, number> = {};
  for (const status of statuses) counts[status] = (counts[status] ?? 0) + 1;
  return counts;
}

async function statusOf(asked: Promise<Response>): Promise<number> {
  const answer = await asked;
  await answer.text();
  return answer.status;
}

const sqlList = (id: string): string => JSON.stringify([id]);

async function wallet(key: string): Promise<Body> {
  return (await cluster.ask(0, '/v1/wallet', { key })).json();
}

describe('four gateways', () => {
  it('admit exactly 100 of 1,000 concurrent requests, and do not count the other 900', async () => {
    const { id, secret, statuses } = await cluster.undisturbed(async () => {
      const key = await cluster.key({ requests_per_minute: 100 });
      const asked = Array.from({ length: 1000 }, (_, index) => statusOf(cluster.chat(index % 4, key.secret)));
      return { ...key, statuses: await Promise.all(asked) };
    });
    expect(countBy(statuses)).toEqual({ 200: 100, 429: 900 });
    // No rejected request counts: with a limit of one more, one more is let in, and it was the last.
    await cluster.ask(0, `/v1/keys/${id}`, { method: 'PATCH', body: { requests_per_minute: 101 } });
    const more = await eventually(async () => {
      const answer = await cluster.chat(3, secret);
      return answer.status === 200 ? answer : null;
    });
    expect(more.headers.get('x-ratelimit-remaining')).toBe('0');
    expect(await statusOf(cluster.chat(2, secret))).toBe(429);
  });

  it('continue the stored responses of one another', async () => {
    const ask = async (which: number, fields: object): Promise<Body> => {
      const body = { model: 'chat', input: 'Hi', max_output_tokens: 4, ...fields };
      const answer = await cluster.ask(which, '/v1/responses', { body });
      return { status: answer.status, ...((await answer.json()) as Body) };
    };
    let id: string | null = null;
    for (const which of [0, 1, 2, 3]) {
      const made: Body = await ask(which, { previous_response_id: id });
      expect(made).toMatchObject({ object: 'response', previous_response_id: id });
      ({ id } = made);
    }
    expect((await cluster.ask(0, `/v1/responses/${id}`)).status).toBe(200);
  });

  it('never spend the balance for ten requests twice, for 500 concurrent requests', async () => {
    const owner = await cluster.organization('1');
    const probe = await cluster.key({}, owner.key);
    const fields = { max_tokens: 64, ignore_eos: true };
    await (await cluster.chat(0, probe.secret, fields)).text();
    const cost = 1 - Number((await wallet(owner.key)).balance);
    // A hold is above its cost and the last answers are cut to what is left, so only the sum is certain.
    const opening = (cost * 10).toFixed(12);
    const { poor, statuses } = await cluster.undisturbed(async () => {
      const poor = await cluster.organization(opening);
      const { secret } = await cluster.key({}, poor.key);
      const asked = Array.from({ length: 500 }, (_, index) => statusOf(cluster.chat(index % 4, secret, fields)));
      return { poor, statuses: await Promise.all(asked) };
    });
    const counts = countBy(statuses);
    const served = counts[200] ?? 0;
    // A gateway that gets no processor for long enough takes Redis for silent: beyond its part it says 503 then.
    expect(counts).toEqual({ 200: served, 402: counts[402], ...(counts[503] !== undefined && { 503: counts[503] }) });
    expect(counts[402]).toBeGreaterThan(0);
    expect(served).toBeGreaterThan(0);
    expect(served).toBeLessThanOrEqual(40);
    const left = await eventually(async () => {
      const now = await wallet(poor.key);
      return now.held === '0' ? now : null;
    });
    expect(Number(left.balance)).toBeGreaterThanOrEqual(0);
    const [row] = await cluster.sql`select count(*)::int as records,
        (${opening}::numeric - sum(cost) / 1e12 = ${left.balance as string}::numeric) as exact
      from usage_records where organization_id = ${poor.id.replace('org_', '')} and cost > 0`;
    expect(row).toEqual({ records: served, exact: true });
  });

  it('end the streams of a revoked key within a second, and reject the key before DELETE answers', async () => {
    const { id, secret } = await cluster.key();
    const fields = { stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 20 } };
    const answers = await Promise.all([0, 1, 2].map((which) => cluster.chat(which, secret, fields)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    const texts = answers.map((answer) => answer.text());
    const revoked = await cluster.ask(3, `/v1/keys/${id}`, { method: 'DELETE' });
    expect(revoked.status).toBe(200);
    const after = await Promise.all([0, 1, 2, 3].map((which) => statusOf(cluster.chat(which, secret))));
    expect(after).toEqual([401, 401, 401, 401]);
    for (const text of await Promise.all(texts)) {
      expect(framesOf(text).at(-2)).toMatchObject({ error: { code: 'unauthorized' } });
      // The engine makes 50 in a second.
      expect(framesOf(text).length).toBeLessThan(150);
    }
  });

  it("end a service account's keys and streams before DELETE or archiving its project answers", async () => {
    const ends = [
      ['DELETE', (projectId: string, id: string) => `/v1/organization/projects/${projectId}/service_accounts/${id}`],
      ['POST', (projectId: string) => `/v1/projects/${projectId}/archive`],
    ] as const;
    for (const [method, path] of ends) {
      const project: Body = await (await cluster.ask(0, '/v1/projects', { body: { name: method } })).json();
      const projectId = project.id;
      const accounts = `/v1/organization/projects/${projectId}/service_accounts`;
      const made: Body = await (await cluster.ask(0, accounts, { body: { name: 'ci' } })).json();
      const secret = made.api_key.value;
      const fields = { stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 20 } };
      const answers = await Promise.all([0, 1, 2].map((which) => cluster.chat(which, secret, fields)));
      expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
      const texts = answers.map((answer) => answer.text());
      expect(await statusOf(cluster.ask(3, path(projectId, made.id), { method }))).toBe(200);
      const after = await Promise.all([0, 1, 2, 3].map((which) => statusOf(cluster.chat(which, secret))));
      expect(after).toEqual([401, 401, 401, 401]);
      for (const text of await Promise.all(texts)) {
        expect(framesOf(text).at(-2)).toMatchObject({ error: { code: 'unauthorized' } });
      }
    }
  });

  it('suspend an organization before PATCH answers, and end its streams within a second', async () => {
    const { id, key } = await cluster.organization('5');
    const { secret } = await cluster.key({}, key);
    const fields = { stream: true, max_tokens: 4000, ignore_eos: true, standin: { tpot_ms: 20 } };
    const answers = await Promise.all([0, 1, 2].map((which) => cluster.chat(which, secret, fields)));
    expect(answers.map(({ status }) => status)).toEqual([200, 200, 200]);
    const texts = answers.map((answer) => answer.text());
    const organize = async (which: number, body: object): Promise<number> =>
      statusOf(cluster.ask(which, `/v1/organizations/${id}`, { method: 'PATCH', body }));
    const everywhere = (): Promise<number[]> =>
      Promise.all([0, 1, 2, 3].map((which) => statusOf(cluster.chat(which, secret))));
    expect(await organize(3, { status: 'suspended' })).toBe(200);
    expect(await everywhere()).toEqual([403, 403, 403, 403]);
    for (const text of await Promise.all(texts)) {
      expect(framesOf(text).at(-2)).toMatchObject({ error: { code: 'organization_suspended' } });
      // The engine makes 50 in a second.
      expect(framesOf(text).length).toBeLessThan(150);
    }
    expect(await organize(1, { status: 'active' })).toBe(200);
    expect(await everywhere()).toEqual([200, 200, 200, 200]);
    expect(await statusOf(cluster.ask(2, `/v1/organizations/${id}`, { method: 'DELETE' }))).toBe(200);
    expect(await everywhere()).toEqual([401, 401, 401, 401]);
  });

  it('remove models from an organization and a key before PATCH answers', async () => {
    const owner = await cluster.organization('5');
    const { id, secret } = await cluster.key({}, owner.key);
    const found: number[][] = [];
    const look = async (): Promise<void> => {
      const statuses = [0, 1, 2, 3].map((which) => statusOf(cluster.chat(which, secret)));
      found.push(await Promise.all(statuses));
      const listed = [0, 1, 2, 3].map(async (which): Promise<number> => {
        const list: Body = await (await cluster.ask(which, '/v1/models', { key: secret })).json();
        return list.data.length;
      });
      found.push(await Promise.all(listed));
    };
    const patch = (which: number, path: string, body: object, key: string): Promise<number> =>
      statusOf(cluster.ask(which, path, { method: 'PATCH', body, key }));
    await look();
    // A list of the deleted model: the file that named it may have been removed since.
    const gone = sqlList('gone');
    await cluster.sql`update organizations set models = ${gone}::text::jsonb where id = ${owner.id.replace('org_', '')}`;
    expect(await patch(1, `/v1/organizations/${owner.id}`, { name: 'limited' }, adminKey)).toBe(200);
    await look();
    expect(await patch(2, `/v1/organizations/${owner.id}`, { models: ['chat'] }, adminKey)).toBe(200);
    await look();
    await cluster.sql`update api_keys set models = ${gone}::text::jsonb where id = ${id.replace('key_', '')}`;
    expect(await patch(3, `/v1/keys/${id}`, { name: 'limited' }, owner.key)).toBe(200);
    await look();
    expect(await patch(0, `/v1/keys/${id}`, { models: ['chat'] }, owner.key)).toBe(200);
    await look();
    const [all, none] = [
      [
        [200, 200, 200, 200],
        [1, 1, 1, 1],
      ],
      [
        [400, 400, 400, 400],
        [0, 0, 0, 0],
      ],
    ];
    expect(found).toEqual([all, none, all, none, all].flat());
  });

  it('apply an edited limit within a second', async () => {
    const statuses = await cluster.undisturbed(async () => {
      const { id, secret } = await cluster.key({ requests_per_minute: 4 });
      const found: number[] = [];
      for (const which of [0, 1, 2, 3, 0]) found.push(await statusOf(cluster.chat(which, secret)));
      await cluster.ask(1, `/v1/keys/${id}`, { method: 'PATCH', body: { requests_per_minute: 8 } });
      for (const which of [0, 1, 2, 3, 3]) found.push(await statusOf(cluster.chat(which, secret)));
      return found;
    });
    expect(statuses).toEqual([200, 200, 200, 200, 429, 200, 200, 200, 200, 429]);
  });

  it('use a credit from another gateway at once', async () => {
    const statuses = await cluster.undisturbed(async () => {
      const owner = await cluster.organization('0.000001');
      const { secret } = await cluster.key({}, owner.key);
      const before = await statusOf(cluster.chat(2, secret));
      const credit = { organization_id: owner.id, amount: '1', reference: 'more' };
      await cluster.ask(0, '/v1/wallet/credits', { body: credit });
      return [before, await statusOf(cluster.chat(2, secret))];
    });
    expect(statuses).toEqual([402, 200]);
  });

  it('use an adjustment from another gateway at once', async () => {
    const statuses = await cluster.undisturbed(async () => {
      const owner = await cluster.organization('1');
      const { secret } = await cluster.key({}, owner.key);
      const adjust = async (amount: string): Promise<void> => {
        const body = { organization_id: owner.id, amount, reason: 'test', reference: amount };
        await cluster.ask(0, '/v1/wallet/adjustments', { body });
      };
      const found = [await statusOf(cluster.chat(2, secret))];
      await adjust(`-${(await wallet(owner.key)).balance as string}`);
      found.push(await statusOf(cluster.chat(2, secret)));
      await adjust('1');
      return [...found, await statusOf(cluster.chat(2, secret))];
    });
    expect(statuses).toEqual([200, 402, 200]);
  });

  it('reject a fifth gateway without REDIS_URL, with an error that names it', async () => {
    await expect(cluster.start({ REDIS_URL: '' })).rejects.toThrow(/ended with 1: .*REDIS_URL/s);
  });
});
