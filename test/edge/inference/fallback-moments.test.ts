import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import {
  type Body,
  chatBody,
  chatPath,
  errorOf,
  eventually,
  externalFile,
  findSocket,
  openOrganization,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';

/** Changes while a request is on its way to another model, and before. */

const allow = { 'x-headgate-allow-fallback': 'true' };
const flexPricing =
  'pricing: { input_per_million: 1, cached_input_per_million: 1, output_per_million: 4, flex_multiplier: 0.5 }';

const flexFile = (id: string, lines: readonly string[] = []): string =>
  standinFile(id, { priced: false, lines: [flexPricing, ...lines] });
const welcoming = (fallbacks: string): string => standinFile('chat', { lines: [`fallbacks: [${fallbacks}]`] });

let folder: string;
let gateway: TestGateway;
beforeAll(async () => {
  folder = writeEngines({
    chat: welcoming('plain'),
    plain: standinFile('plain'),
    late: standinFile('late', {
      flags: ['--start-delay-ms', '60000'],
      lines: ['start_timeout_seconds: 4', 'fallbacks: [plain]'],
    }),
    gone: externalFile('gone', 'http://127.0.0.1:1', { lines: ['fallbacks: [plain]'] }),
    narrow: flexFile('narrow', ['max_concurrent: 1', 'fallbacks: [plain, wide]']),
    wide: flexFile('wide'),
  });
  gateway = await startGateway({ enginesDir: folder, env: { HEADGATE_FLEX_QUEUE_MAX: '1' } });
  await (await ask({ model: 'plain' })).text();
});
afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

const ask = (fields: object, options: { readonly key?: string; readonly signal?: AbortSignal } = {}) =>
  gateway.request(chatPath, { body: chatBody(fields), headers: allow, ...options });
const headerOf = ({ headers }: Response): string | null => headers.get('x-headgate-fallback');

async function recordOf(answer: Response, key = gateway.key): Promise<Body> {
  const path = `/v1/usage/requests/${answer.headers.get('x-request-id')}`;
  return eventually(async () => {
    const found = await gateway.request(path, { key });
    return found.status === 200 ? found.json() : null;
  });
}

async function statusOf(model: string): Promise<string> {
  return ((await (await gateway.request(`/v1/models/${model}`)).json()) as Body).status;
}

describe('a request that waits for its model to start', () => {
  it('gets no fallback that its key may no longer use', async () => {
    const { key } = await openOrganization(gateway, '1');
    const body = { name: 'app', requests_per_minute: null };
    const app = (await (await gateway.request('/v1/keys', { key, body })).json()) as Body;
    const answers = [ask({ model: 'late' }, { key: app.secret }), ask({ model: 'late' }, { key })];
    await eventually(async () => (await statusOf('late')) === 'starting');
    const change = { method: 'PATCH', key, body: { models: ['late'] } };
    expect((await gateway.request(`/v1/keys/${app.id}`, change)).status).toBe(200);
    const [barred, free] = await Promise.all(answers);
    if (barred === undefined || free === undefined) throw new Error('nothing was asked');
    expect(headerOf(barred)).toBeNull();
    expect(await errorOf(barred)).toMatchObject({ status: 503, code: 'upstream_error' });
    expect(await recordOf(barred, key)).toMatchObject({ model: 'late', fallback_for: null, cost: '0' });
    expect([free.status, headerOf(free)]).toEqual([200, 'plain']);
    await free.text();
  });
});

describe('many fallbacks at once', () => {
  it("do not overdraw the wallet, and are charged their own model's price", async () => {
    const { key } = await openOrganization(gateway, '0.0006');
    const asked = Array.from({ length: 30 }, () => ask({ model: 'gone', max_tokens: 64 }, { key }));
    const answers = await Promise.all(asked);
    await Promise.all(answers.map((answer) => answer.text()));
    const served = answers.filter(({ status }) => status === 200);
    expect(served.length).toBeGreaterThan(0);
    expect(served.map(headerOf)).toEqual(served.map(() => 'plain'));
    const wallet = await eventually(async () => {
      const now: Body = await (await gateway.request('/v1/wallet', { key })).json();
      return now.held === '0' ? now : null;
    });
    const { sql } = gateway.db;
    const [row] = await sql`select (600000000 - sum(r.cost))::text as left, sum(r.written_off)::text as beyond
      from usage_records r where r.fallback_for = 'gone' and r.organization_id = (
        select organization_id from usage_records where id = ${served[0]?.headers.get('x-request-id') ?? ''})`;
    expect(row?.['beyond']).toBe('0');
    expect(Math.round(Number(wallet.balance) * 1e12)).toBe(Number(row?.['left']));
    expect(Number(wallet.balance)).toBeGreaterThanOrEqual(0);
  });
});

describe('a flex request with fallbacks', () => {
  it('goes to a model with a flex price when the queue is full, at that flex price', async () => {
    await (await ask({ model: 'narrow' })).text();
    const leaving = new AbortController();
    const long = { model: 'narrow', max_tokens: 8000, standin: { output_tokens: 8000, tpot_ms: 20 } };
    const running = await ask({ ...long, stream: true }, { signal: leaving.signal });
    const waiting = ask({ model: 'narrow', service_tier: 'flex' }, { signal: leaving.signal }).catch(() => null);
    const answer = await eventually(async () => {
      const one = await ask({ model: 'narrow', service_tier: 'flex' }, { signal: AbortSignal.timeout(2000) }).catch(
        () => null,
      );
      return one?.status === 200 && headerOf(one) !== null ? one : null;
    });
    expect(headerOf(answer)).toBe('wide');
    const { usage }: Body = await answer.json();
    const record = await recordOf(answer);
    expect(record).toMatchObject({ model: 'wide', fallback_for: 'narrow', service_tier: 'flex' });
    const pico = usage.prompt_tokens * 500_000 + usage.completion_tokens * 2_000_000;
    expect(Math.round(Number(record.cost) * 1e12)).toBe(pico);
    leaving.abort();
    await running.text().catch(() => null);
    await waiting;
  });
});

describe('a changed fallback list', () => {
  it('applies to the next request without restarts, and returns 422 with an unknown model', async () => {
    await (await ask({ model: 'chat' })).text();
    const socket = findSocket(gateway.dataDir, 'chat');
    const reload = (fallbacks: string) => {
      writeFileSync(join(folder, 'chat.yaml'), welcoming(fallbacks));
      return gateway.request('/v1/admin/engines/reload', { method: 'POST' });
    };
    const listed = async (): Promise<Body> =>
      ((await (await gateway.request('/v1/models/chat')).json()) as Body).fallbacks;
    expect((await reload('nobody')).status).toBe(422);
    expect(await listed()).toEqual(['plain']);
    expect((await reload('wide, plain')).status).toBe(200);
    expect(await listed()).toEqual(['wide', 'plain']);
    await (await ask({ model: 'chat' })).text();
    expect(findSocket(gateway.dataDir, 'chat')).toBe(socket);
    expect((await gateway.request('/v1/admin/engines/chat/stop', { method: 'POST' })).status).toBe(202);
    const answer = await ask({ model: 'chat' });
    expect([answer.status, headerOf(answer)]).toEqual([200, 'wide']);
    await answer.text();
  });
});
