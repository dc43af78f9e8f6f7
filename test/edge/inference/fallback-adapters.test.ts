import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import {
  type Body,
  chatBody,
  chatPath,
  eventually,
  externalFile,
  openOrganization,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';

/** Adapters in the place of models, and models that are withdrawn while they are waited for. */

const headers = { 'x-headgate-allow-fallback': 'true' };
const dear = 'pricing: { input_per_million: 1, cached_input_per_million: 1, output_per_million: 4 }';

let folder: string;
let gateway: TestGateway;
beforeAll(async () => {
  folder = writeEngines({
    chat: standinFile('chat', {
      lines: ['lora:', `  - { id: tuned, path: test/tuned-lora, aliases: [The Tuned One], ${dear} }`],
    }),
    lost: standinFile('lost', {
      lines: ['lora: [{ id: lost-tuned, path: /nowhere/lora, fallbacks: [The Tuned One] }]'],
    }),
    gone: externalFile('gone', 'http://127.0.0.1:1', { lines: ['fallbacks: [tuned]'] }),
    plain: standinFile('plain'),
    late: standinFile('late', { flags: ['--start-delay-ms', '600000'], lines: ['fallbacks: [plain, tuned]'] }),
  });
  gateway = await startGateway({ enginesDir: folder });
});
afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

const ask = (fields: object, key = gateway.key): Promise<Response> =>
  gateway.request(chatPath, { body: chatBody(fields), headers, key });

async function recordOf(answer: Response, key = gateway.key): Promise<Body> {
  const path = `/v1/usage/requests/${answer.headers.get('x-request-id')}`;
  return eventually(async () => {
    const found = await gateway.request(path, { key });
    return found.status === 200 ? found.json() : null;
  });
}

it.each([
  ['an adapter that is not there', 'lost-tuned'],
  ['a model', 'gone'],
])("answers with an adapter instead of %s, by the adapter's name and price", async (_, model) => {
  for (const stream of [true, false]) {
    const answer = await ask({ model, stream });
    expect([answer.status, answer.headers.get('x-headgate-fallback')]).toEqual([200, 'tuned']);
    expect(await answer.text()).toContain('"model":"tuned"');
    const record = await recordOf(answer);
    expect(record).toMatchObject({ model: 'tuned', fallback_for: model, price: { output_per_million: '4' } });
  }
});

it("falls back to another model when a model's file is removed during its start", async () => {
  const { key } = await openOrganization(gateway, '1');
  const asked = ask({ model: 'late' }, key);
  const statusOf = async (): Promise<string> =>
    ((await (await gateway.request('/v1/models/late')).json()) as Body).status;
  await eventually(async () => (await statusOf()) === 'starting');
  for (const name of ['late', 'plain']) rmSync(join(folder, `${name}.yaml`));
  expect((await gateway.request('/v1/admin/engines/reload', { method: 'POST' })).status).toBe(200);
  const answer = await asked;
  expect([answer.status, answer.headers.get('x-headgate-fallback')]).toEqual([200, 'tuned']);
  await answer.text();
  expect(await recordOf(answer, key)).toMatchObject({ model: 'tuned', fallback_for: 'late', outcome: 'completed' });
  const wallet: Body = await (await gateway.request('/v1/wallet', { key })).json();
  expect(wallet.held).toBe('0');
});
