import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type EmbeddingServers, startEmbeddingServers } from './embedding-servers.ts';
import {
  chatBody,
  chatPath,
  errorOf,
  externalFile,
  openOrganization,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';
import { textsOf } from './texts-bench.ts';

const pricing = 'pricing: { input_per_million: 0.10, output_per_million: 0, flex_multiplier: 0.5 }';

let servers: EmbeddingServers;
let gateway: TestGateway;
let folder: string;

beforeAll(async () => {
  servers = await startEmbeddingServers(1);
  const options = { taskType: 'embedding', priced: false, lines: [pricing, 'max_concurrent: 1', 'enabled: true'] };
  const files = ['leaving', 'growing'].map((id) => [id, externalFile(id, servers.urls[0] ?? '', options)]);
  folder = writeEngines({ ...Object.fromEntries(files), old: standinFile('old', { lines: ['lora: []'] }) });
  gateway = await startGateway({ enginesDir: folder });
});
afterEach(() => servers.reset());
afterAll(async () => {
  await gateway.stop();
  servers.close();
  rmSync(folder, { recursive: true, force: true });
});

async function change(id: string, from: string, to: string): Promise<void> {
  const path = join(folder, `${id}.yaml`);
  writeFileSync(path, readFileSync(path, 'utf8').replace(from, to));
  expect((await gateway.request('/v1/admin/engines/reload', { method: 'POST' })).status).toBe(200);
}

const embed = (fields: object, key = gateway.key) => gateway.request('/v1/embeddings', { body: fields, key });

describe('a reload of engine files while requests run', () => {
  it('ends a request of many texts whose model was removed, with 503 and at no cost', async () => {
    const { key } = await openOrganization(gateway, '1');
    servers.onAsked = () => undefined;
    const answer = embed({ model: 'leaving', input: textsOf(1000) }, key);
    await expect.poll(() => servers.open.length).toBe(2);
    await change('leaving', 'enabled: true', 'enabled: false');
    for (const one of servers.open) one.answer();
    expect(await errorOf(await answer)).toMatchObject({
      status: 503,
      code: 'upstream_error',
      message: 'This model is no longer served.',
    });
    const wallet = await (await gateway.request('/v1/wallet', { key })).json();
    expect(wallet).toMatchObject({ balance: '1', held: '0' });
  });

  it('applies the new number of places to flex requests', async () => {
    servers.onAsked = () => undefined;
    const flex = () => embed({ model: 'growing', input: 'text 0', service_tier: 'flex' });
    const answers = [flex(), flex(), flex()];
    await expect.poll(() => servers.open.length).toBe(1);
    await change('growing', 'max_concurrent: 1', 'max_concurrent: 3');
    await expect.poll(() => servers.open.length).toBe(3);
    for (const one of servers.open) one.answer();
    for (const answer of answers) expect((await answer).status).toBe(200);
  });
});

it('an adapter returns 503 with Retry-After while the running engine is older than the adapter', async () => {
  const chat = (model: string) => gateway.request(chatPath, { body: chatBody({ model }) });
  expect((await chat('old')).status).toBe(200);
  // The new replica does not find the adapter, so the one before it keeps serving.
  await change('old', 'lora: []', 'lora: [{ id: newer, path: /nowhere/lora }]');
  const answer = await chat('newer');
  expect(answer.headers.get('retry-after')).toBe('5');
  const error = await errorOf(answer);
  expect(error).toMatchObject({ status: 503, code: 'upstream_error' });
  expect(error.message).toContain('has not been updated with this adapter yet');
  expect((await chat('old')).status).toBe(200);
});
