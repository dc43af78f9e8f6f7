import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import {
  type Body,
  brokenFile,
  chatBody,
  chatPath,
  eventually,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';

/** Weights that only the last version of a file names that passed its checks. */

const home = mkdtempSync(join(tmpdir(), 'hg-former-'));
const former = standinFile('chat', { flags: ['--speculative-config', '{"model": "acme/former"}'] });
const folder = writeEngines({ chat: former });
let gateway: TestGateway;

beforeAll(async () => {
  for (const part of ['blobs', 'refs', 'snapshots'])
    mkdirSync(join(home, 'hub', 'models--acme--former', part), { recursive: true });
  gateway = await startGateway({ enginesDir: folder, env: { HF_HOME: home } });
});
afterAll(async () => {
  await gateway.stop();
  for (const one of [home, folder]) rmSync(one, { recursive: true, force: true });
});

const read = async (path: string): Promise<Body> => (await gateway.request(path)).json();

it('are kept while the engine returns to that version, as its file is rejected', async () => {
  expect((await gateway.request(chatPath, { body: chatBody({}) })).status).toBe(200);
  writeFileSync(join(folder, 'chat.yaml'), brokenFile('chat'));
  expect((await gateway.request('/v1/admin/engines/reload', { method: 'POST' })).status).toBe(200);
  await eventually(async () => (await read('/v1/admin/engines/chat')).rollout?.state === 'refused');
  expect((await read('/v1/admin/unused-storage')).data).toEqual([]);
  expect((await gateway.request('/v1/admin/unused-storage/acme%2Fformer', { method: 'DELETE' })).status).toBe(404);
});
