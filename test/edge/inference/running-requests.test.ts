import { expect, it } from 'vitest';
import { runCli } from '#test/cli/run-cli.ts';
import {
  type Body,
  chatBody,
  chatPath,
  errorOf,
  eventually,
  framesOf,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { signInVisitor } from '#test/portal/visitor.ts';

/** Operators list running requests, and cancel one. */
const bench = useInference(() => ({
  engines: {
    single: standinFile('single'),
    // Its requests wait for its start, which does not end.
    late: standinFile('late', { flags: ['--start-delay-ms', '3600000'] }),
  },
}));

const path = (engineId: string, rest = ''): string => `/v1/admin/engines/${engineId}/requests${rest}`;
const running = async (engineId = 'single'): Promise<Body[]> =>
  JSON.parse(await (await bench.gateway.request(path(engineId))).text()).data;
const cancel = (id: string, engineId = 'single', options: object = {}): Promise<Response> =>
  bench.gateway.request(path(engineId, `/${id}/cancel`), { method: 'POST', ...options });

/** A long stream that has begun, and a request that waits for its engine. */
async function twoRequests(key: string) {
  const standin = { output_tokens: 4000, tpot_ms: 20 };
  const long = chatBody({ model: 'single', stream: true, max_tokens: 4000, user: 'ada', standin });
  const stream = await bench.post(chatPath, long, { key });
  const queued = bench.post(chatPath, chatBody({ model: 'late' }), { key });
  const waiting = await eventually(async () => (await running('late')).find(({ state }) => state === 'queued') ?? null);
  return { stream, id: stream.headers.get('x-request-id') ?? '', queued, waiting };
}

it('are listed, and end with an error when an operator cancels them', async () => {
  const { id: organization_id, key } = await openOrganization(bench.gateway, '5');
  const { stream, id, queued, waiting } = await twoRequests(key);
  const [first, ...others] = await running();
  expect(first).toMatchObject({ id, object: 'running_request', state: 'answering', model: 'single', end_user: 'ada' });
  expect(first).toMatchObject({ organization_id, endpoint: chatPath, key_id: expect.stringMatching(/^key_/) });
  expect(others).toEqual([]);
  expect(await running('late')).toEqual([waiting]);

  const canceled = await cancel(waiting.id, 'late');
  expect([canceled.status, await canceled.json()]).toEqual([202, waiting]);
  const refused = await queued;
  expect([refused.status, refused.headers.get('x-should-retry')]).toEqual([503, 'false']);
  expect(await errorOf(refused)).toMatchObject({
    code: 'upstream_error',
    message: 'An operator canceled this request.',
  });

  expect((await cancel(id)).status).toBe(202);
  const frames = framesOf(await stream.text());
  expect(frames.at(-2)).toMatchObject({ error: { message: 'An operator canceled this request.' } });
  const record = await bench.record(id, key);
  expect(record).toMatchObject({ outcome: 'ended', end_user: 'ada' });
  expect(record.output_tokens).toBeGreaterThan(0);
  expect(Number(record.cost)).toBeGreaterThan(0);
  await eventually(async () => (await running()).length === 0);

  const asked = await bench.gateway.request('/v1/audit?action=engine.request_canceled');
  const audit: Body = await asked.json();
  expect(audit.data.map(({ before }: Body) => before)).toEqual([
    { request_id: id, organization_id, model: 'single', state: 'answering' },
    { request_id: waiting.id, organization_id, model: 'late', state: 'queued' },
  ]);
});

it('stay when a cancellation names another engine or an ended request, or comes from another caller', async () => {
  const { key } = await openOrganization(bench.gateway, '5');
  const { stream, id, queued, waiting } = await twoRequests(key);
  expect((await cancel(id, 'late')).status).toBe(404);
  expect((await cancel(id, 'none')).status).toBe(404);
  expect((await cancel('019ab1c2-d3e4-7f00-8a1b-2c3d4e5f6071')).status).toBe(404);
  expect((await cancel('x')).status).toBe(404);
  // The management key of an organization is no platform administrator.
  expect((await cancel(id, 'single', { key })).status).toBe(403);
  expect((await bench.gateway.request(path('single'), { key })).status).toBe(403);
  expect((await running()).map((one) => one.id)).toEqual([id]);

  // The engine's page cancels one, the command line the other.
  const operator = await signInVisitor(bench.gateway);
  const page = await operator.get('/portal/engines/single');
  expect(page.text).toContain(`action="/portal/engines/single/requests/${id}/cancel"`);
  const sent = await operator.post(`/portal/engines/late/requests/${waiting.id}/cancel`);
  expect([sent.status, sent.headers['location']]).toEqual([303, '/portal/engines/late?notice=canceled']);
  expect((await queued).status).toBe(503);
  const again = await operator.post(`/portal/engines/late/requests/${waiting.id}/cancel`);
  expect([again.status, again.text]).toEqual([404, expect.stringContaining('It may have ended.')]);

  const env = { HEADGATE_URL: bench.gateway.url, HEADGATE_API_KEY: bench.gateway.key };
  const listed = await runCli(['engines', 'requests', 'single'], { env });
  expect([listed.code, listed.stdout]).toEqual([0, expect.stringContaining(id)]);
  const ended = await runCli(['engines', 'cancel', 'single', id], { env });
  expect(ended).toMatchObject({ code: 0, stdout: `${id}: canceled\n` });
  await stream.text();
});
