import { describe, expect, it } from 'vitest';
import {
  type Body,
  errorOf,
  eventually,
  externalFile,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** How a request ends for which another model is on its way and has nothing yet. */

const headers = { 'x-headgate-allow-fallback': 'true' };

const bench = useInference(() => ({
  engines: {
    gone: externalFile('gone', 'http://127.0.0.1:1', { lines: ['fallbacks: [never]'] }),
    never: standinFile('never', { flags: ['--start-delay-ms', '600000'] }),
  },
  env: { HEADGATE_METRICS_PORT: '0' },
}));

const headerOf = ({ headers: given }: Response): string | null => given.get('x-headgate-fallback');

async function waitsForOther(): Promise<void> {
  await eventually(async () => {
    const metrics = await (await fetch(`${bench.gateway.metricsUrl}/metrics`)).text();
    return /headgate_waiting_requests\{model="never"\} [1-9]/.test(metrics);
  });
}

async function onlyRecord(key: string): Promise<Body> {
  return eventually(async () => {
    const page: Body = await (await bench.gateway.request('/v1/usage/requests', { key })).json();
    return page.data[0] ?? null;
  });
}

const ofNoOther = { model: 'gone', fallback_for: null, cost: '0' };

async function expectNothingOfOther(key: string): Promise<void> {
  expect(await bench.wallet(key)).toMatchObject({ balance: '1', held: '0' });
  const metrics = await (await fetch(`${bench.gateway.metricsUrl}/metrics`)).text();
  expect(metrics).not.toMatch(/headgate_fallbacks_total\{[^}]*\} [1-9]/);
}

describe.each([[true], [false]])('a request that ends during its fallback, stream %s,', (stream) => {
  it('names no fallback when its key is revoked', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const made: Body = await (
      await bench.gateway.request('/v1/keys', { key, body: { name: 'app', requests_per_minute: null } })
    ).json();
    const asked = bench.chat({ model: 'gone', stream }, { key: made.secret, headers });
    await waitsForOther();
    expect((await bench.gateway.request(`/v1/keys/${made.id}`, { method: 'DELETE', key })).status).toBe(200);
    const answer = await asked;
    expect(headerOf(answer)).toBeNull();
    expect(await errorOf(answer)).toMatchObject({ status: 401 });
    expect(await onlyRecord(key)).toMatchObject({ ...ofNoOther, outcome: 'ended' });
    await expectNothingOfOther(key);
  });

  it('names no fallback when its client leaves', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const leaving = new AbortController();
    const asked = bench.chat({ model: 'gone', stream }, { key, headers, signal: leaving.signal }).catch(() => null);
    await waitsForOther();
    leaving.abort();
    await asked;
    expect(await onlyRecord(key)).toMatchObject({ ...ofNoOther, outcome: 'aborted' });
    await expectNothingOfOther(key);
  });
});
