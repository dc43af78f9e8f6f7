import { beforeAll, describe, expect, it } from 'vitest';
import {
  type Body,
  chatBody,
  errorOf,
  openOrganization,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { startRedis } from '#test/redis.ts';
import { storeNames } from './limited-gateway.ts';

const free = 'pricing: { input_per_million: 0, cached_input_per_million: 0, output_per_million: 0 }';

describe.each(storeNames)('a free model, with admission in %s', (name) => {
  let gateway: TestGateway;
  beforeAll(async () => {
    const redis = name === 'redis' ? await startRedis() : null;
    const enginesDir = writeEngines({
      chat: standinFile('chat'),
      free: standinFile('free', { priced: false, lines: [free] }),
    });
    gateway = await startGateway({ enginesDir, ...(redis !== null && { redisUrl: redis.url }) });
    return async () => {
      await gateway.stop();
      await redis?.stop();
    };
  });

  const ask = (key: string, fields: object): Promise<Response> =>
    gateway.request('/v1/chat/completions', { body: chatBody(fields), key });

  it.each([false, true])('answers with an empty wallet, streamed: %s', async (stream) => {
    const { key } = await openOrganization(gateway, null);
    const answer = await ask(key, { model: 'free', stream });
    expect(answer.status).toBe(200);
    await answer.text();
    expect(await errorOf(await ask(key, { model: 'chat', stream }))).toMatchObject({ code: 'insufficient_funds' });
    const wallet: Body = await (await gateway.request('/v1/wallet', { key })).json();
    expect(wallet).toMatchObject({ balance: '0', held: '0' });
  });

  it('answers while the wallet is held in full, and takes nothing from running requests', async () => {
    const { key } = await openOrganization(gateway, '0.0004');
    const running = ask(key, { max_tokens: 8000, standin: { output_tokens: 60, tpot_ms: 20 } });
    const answer = await ask(key, { model: 'free' });
    expect(answer.status).toBe(200);
    expect((await running).status).toBe(200);
  });
});
