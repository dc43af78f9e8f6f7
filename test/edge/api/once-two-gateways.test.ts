import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import { type Answer, startApi, type TestApi } from '#test/api/test-api.ts';

let database: TestDatabase;
const gateways: TestApi[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  for (let n = 0; n < 2; n += 1) gateways.push(await startApi({ databaseUrl: database.url }));
});

afterAll(async () => {
  for (const gateway of gateways) await gateway.stop();
  await database.drop();
});

const times = 4;

/** Sends a request with one Idempotency-Key to both gateways at once, a few times with other bodies. */
async function askBoth(path: string, body: (n: number) => object): Promise<readonly (readonly Answer[])[]> {
  const { key } = (await gateways[0]?.organization()) ?? { key: '' };
  for (const gateway of gateways) await gateway.ask('/v1/projects', { key });
  const pairs: Answer[][] = [];
  for (let n = 0; n < times; n += 1) {
    const asked = { key, body: body(n), headers: { 'idempotency-key': `both ${n}` } };
    pairs.push(await Promise.all(gateways.map((gateway) => gateway.ask(path, asked))));
  }
  return pairs;
}

const password = 'correct horse battery';
const isDaily = (n: number): boolean => n % 2 === 0;
const isHard = (n: number): boolean => n < 2;

describe('a request sent to two gateways at once with one Idempotency-Key', () => {
  it.each([
    ['/v1/projects', (n: number) => ({ name: `Same ${n}` })],
    ['/v1/users', (n: number) => ({ email: `same${n}@once.test`, name: 'A', password })],
    [
      '/v1/budgets',
      (n: number) => ({
        scope: { type: 'user', id: null },
        period: isDaily(n) ? 'daily' : 'monthly',
        mode: isHard(n) ? 'hard' : 'soft',
        amount: '5',
      }),
    ],
  ] as const)('returns the one created object from both: %s', async (path, body) => {
    for (const [one, two] of await askBoth(path, body)) {
      expect([one?.status, two?.status]).toEqual([201, 201]);
      expect(one?.body.id).toBe(two?.body.id);
      const replayed = [one, two].filter((answer) => answer?.headers.get('idempotent-replayed') === 'true');
      expect(replayed).toHaveLength(1);
      for (const answer of [one, two]) expect(answer?.headers.get('x-should-retry')).toBeNull();
    }
  });

  it('returns 409 with the id of the key from the gateway that did not create it', async () => {
    for (const pair of await askBoth('/v1/keys', (n) => ({ name: `Same ${n}` }))) {
      const [made, other] = pair.toSorted((a, b) => a.status - b.status);
      expect([made?.status, other?.status]).toEqual([201, 409]);
      expect(other?.body.error.message).toContain(made?.body.id);
    }
  });
});
