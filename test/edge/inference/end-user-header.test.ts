import { beforeAll, expect, it } from 'vitest';
import { startGateway } from '#test/gateway.ts';
import {
  type Body,
  errorOf,
  eventually,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** End users that a chat app such as Open WebUI names in a header, for all of its users with one key. */

const header = 'x-openwebui-user-id';
const bench = useInference(() => ({
  engines: { chat: standinFile('chat') },
  env: { HEADGATE_END_USER_HEADER: 'X-OpenWebUI-User-Id' },
}));

let app = { key: '', management: '' };
let other = '';
beforeAll(async () => {
  const { key } = await openOrganization(bench.gateway, '10');
  const make = async (fields: object): Promise<Body> =>
    (await bench.gateway.request('/v1/keys', { key, body: { name: 'app', ...fields } })).json();
  const made = await make({ end_user_from_header: true });
  app = { key: made.secret, management: key };
  other = (await make({})).secret;
  // Five requests cost more.
  const body = { scope: { type: 'user', id: null }, period: 'monthly', amount: '0.0001' };
  await bench.gateway.request('/v1/budgets', { key, body });
});

const ask = (user: string | null, fields: object = {}, key = app.key): Promise<Response> =>
  bench.chat(
    { max_tokens: 64, standin: { output_tokens: 64 }, ...fields },
    { key, headers: user === null ? {} : { [header]: user } },
  );

/** Returns the USD that an end user has spent, by the budget of each end user. */
async function spentBy(user: string): Promise<number> {
  const options = { key: app.management };
  const { data }: Body = await (await bench.gateway.request('/v1/budgets', options)).json();
  const found = await bench.gateway.request(`/v1/budgets/${data[0].id}?user=${encodeURIComponent(user)}`, options);
  return Number(((await found.json()) as Body).spent);
}

/** Sends requests until the budget rejects one. */
const useUp = (user: string): Promise<Body> =>
  eventually(async () => {
    const answer = await ask(user);
    return answer.status === 200 ? null : errorOf(answer);
  });

it('gives each user of one key a budget of their own', async () => {
  const refused = await useUp('anna');
  expect(refused).toMatchObject({ status: 402, code: 'budget_exceeded' });
  expect((await ask('bob')).status).toBe(200);
  await expect.poll(() => spentBy('bob')).toBeGreaterThan(0);
});

it('takes precedence over the user in the body, which is used without the header', async () => {
  const answers = [await ask('carol', { user: 'anna' }), await ask(null, { user: 'dan' })];
  expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  await expect.poll(() => spentBy('carol')).toBeGreaterThan(0);
  await expect.poll(() => spentBy('dan')).toBeGreaterThan(0);
  expect((await ask(null, { user: 'anna' })).status).toBe(402);
});

it('is ignored for keys that do not say so', async () => {
  expect((await ask('anna', {}, other)).status).toBe(200);
  expect((await ask('anna', { user: 'anna' }, other)).status).toBe(402);
  expect((await ask('x'.repeat(300), {}, other)).status).toBe(200);
});

it.each(['', 'two words', 'a, b', 'x'.repeat(257), 'Zo\u00eb'])(
  'returns 400 for a header that is no name: %j',
  async (value) => {
    const error = await errorOf(await ask(value));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: header });
    expect(error.message).toContain('1 to 256 printable ASCII characters');
  },
);

it('cannot be set on a key of a gateway that reads no header, where budgets of end users would limit nobody', async () => {
  const gateway = await startGateway();
  const made = await gateway.request('/v1/keys', { body: { name: 'app', end_user_from_header: true } });
  const { error } = (await made.json()) as Body;
  expect([made.status, error.message]).toEqual([400, expect.stringContaining('HEADGATE_END_USER_HEADER')]);
  const { id }: Body = await (await gateway.request('/v1/keys', { body: { name: 'app' } })).json();
  const changed = await gateway.request(`/v1/keys/${id}`, { method: 'PATCH', body: { end_user_from_header: true } });
  expect(changed.status).toBe(400);
  await gateway.stop();
});
