import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { json as readJson } from 'node:stream/consumers';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { type LocalReceiver, startLocalReceiver } from '#test/alerts/local-receiver.ts';
import { batchEnd, batchWhen, flexFile, flexPricing, line, outputOf, startBatch } from '#test/inference/batch-bench.ts';
import { type Body, externalFile, json, openOrganization, useInference } from '#test/inference/inference-gateway.ts';
import { enoughOfTheDay } from '#test/one-day.ts';

beforeEach(enoughOfTheDay);

/** A batch whose budget or organization stops it midway: it waits, and nothing is asked twice. */

let receiver: LocalReceiver;
/** Makes as many tokens as a request allows. */
const open = createServer((incoming, response) => {
  if (incoming.method !== 'POST') return response.writeHead(404).end();
  return void readJson(incoming).then(({ model, max_completion_tokens: made }: Body) => {
    const choices = [{ index: 0, message: { role: 'assistant', content: 'word' }, finish_reason: 'stop' }];
    const usage = { prompt_tokens: 9, completion_tokens: made, total_tokens: made + 9 };
    response.writeHead(200, json).end(JSON.stringify({ id: 'x', object: 'chat.completion', model, choices, usage }));
  });
});
const bench = useInference(async () => {
  receiver = await startLocalReceiver();
  open.listen(0, '127.0.0.1');
  await once(open, 'listening');
  const url = `http://127.0.0.1:${(open.address() as AddressInfo).port}`;
  const openFile = externalFile('open', url, { priced: false, lines: [flexPricing, 'kind: openai'] });
  return { engines: { chat: flexFile('chat'), open: openFile }, env: { HEADGATE_WEBHOOK_HOSTS: receiver.host } };
});
afterAll(async () => {
  await receiver.close();
  open.close();
  open.closeAllConnections();
});

const tokens = 40;
const lines = 20;
const body = { max_tokens: tokens, standin: { output_tokens: tokens, tpot_ms: 1 } };
/** One line is answered at once, the others take their time: what happens after the first one is midway. */
const midwayLines = Array.from({ length: lines }, (_, n) =>
  line(n, { body: { ...body, standin: { output_tokens: tokens, tpot_ms: n === 0 ? 1 : 20 } } }),
).join('\n');

async function expectWhole(batch: Body, key: string): Promise<void> {
  expect(batch).toMatchObject({ status: 'completed', request_counts: { total: lines, completed: lines, failed: 0 } });
  const output = await outputOf(bench.gateway, batch.output_file_id, key);
  expect(new Set(output.map(({ custom_id: id }) => id)).size).toBe(lines);
  const { totals }: Body = await (await bench.gateway.request('/v1/usage/summary?from=2026-01-01', { key })).json();
  const { ended } = totals.outcomes;
  expect(totals.outcomes).toEqual({ completed: lines, aborted: 0, ended, failed: 0 });
  // A line that was ended under way is charged for the tokens that were made.
  expect(totals.output_tokens).toBeGreaterThanOrEqual(lines * tokens);
  expect(totals.output_tokens).toBeLessThanOrEqual((lines + ended) * tokens);
}

const patch = async (path: string, key: string | undefined, fields: object): Promise<void> => {
  const options = { method: 'PATCH', body: fields, ...(key !== undefined && { key }) };
  expect((await bench.gateway.request(path, options)).status).toBe(200);
};

describe('a batch that is interrupted midway', () => {
  it('waits at a hard budget, spends no more, and continues when the budget is raised', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const post = async (path: string, fields: object): Promise<Body> =>
      (await bench.post(path, fields, { key })).json();
    await post('/v1/webhooks', { url: receiver.url, events: ['budget.exceeded'] });
    const budget = await post('/v1/budgets', {
      scope: { type: 'user', id: null },
      period: 'daily',
      amount: '0.00005',
    });
    expect(budget).toMatchObject({ mode: 'hard' });
    const text = Array.from({ length: lines }, (_, n) => line(n, { body: { ...body, user: 'nightly' } })).join('\n');
    const { id } = await startBatch(bench.gateway, text, { key });
    const waiting = await batchWhen(bench.gateway, id, ({ waiting_for: code }) => code === 'budget_exceeded', key);
    expect(waiting).toMatchObject({ status: 'in_progress', request_counts: { failed: 0 } });
    const { totals }: Body = await (await bench.gateway.request('/v1/usage/summary?from=2026-01-01', { key })).json();
    expect(Number(totals.cost)).toBeGreaterThan(0);
    expect(Number(totals.cost)).toBeLessThanOrEqual(0.00005);
    await expect.poll(() => receiver.got.length).toBe(1);
    await patch(`/v1/budgets/${budget.id}`, key, { amount: '1' });
    await expectWhole(await batchEnd(bench.gateway, id, key), key);
    expect(receiver.got).toHaveLength(1);
  });

  it.each([
    ['is sure to keep to', { max_tokens: 4000 }],
    ['may not know', { model: 'open', max_tokens: undefined, max_completion_tokens: 4000 }],
  ])(
    'waits for a hard budget that pays for the output of a line, with a limit that its engine %s',
    async (_, limit) => {
      const { key } = await openOrganization(bench.gateway, '5');
      const fields = { scope: { type: 'user', id: null }, period: 'daily', amount: '0.0005' };
      const budget: Body = await (await bench.post('/v1/budgets', fields, { key })).json();
      const long = { user: 'nightly', ...limit, standin: { output_tokens: 4000 } };
      const { id } = await startBatch(bench.gateway, line(0, { body: long }), { key });
      const seen = ({ status, waiting_for: code }: Body): boolean => status === 'completed' || code !== null;
      expect(await batchWhen(bench.gateway, id, seen, key)).toMatchObject({ waiting_for: 'budget_exceeded' });
      // It pays for what is asked, and not for the context.
      await patch(`/v1/budgets/${budget.id}`, key, { amount: '0.001' });
      const { output_file_id: file } = await batchEnd(bench.gateway, id, key);
      const [{ response }] = await outputOf(bench.gateway, file, key);
      expect(response.body.usage.completion_tokens).toBe(4000);
    },
  );

  it('waits while its organization is suspended, and continues when it is active', async () => {
    const { id: organization, key } = await openOrganization(bench.gateway, '5');
    const { id } = await startBatch(bench.gateway, midwayLines, { key });
    await batchWhen(bench.gateway, id, ({ request_counts: counts }) => counts.completed > 0, key);
    await patch(`/v1/organizations/${organization}`, undefined, { status: 'suspended' });
    const scoped = `/v1/batches/${id}?organization_id=${organization}`;
    await expect
      .poll(async () => ((await (await bench.gateway.request(scoped)).json()) as Body).waiting_for)
      .toBe('organization_suspended');
    await patch(`/v1/organizations/${organization}`, undefined, { status: 'active' });
    await expectWhole(await batchEnd(bench.gateway, id, key), key);
  });

  it('waits while its project is archived, fails no line, and continues when it is restored', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const { id } = await startBatch(bench.gateway, midwayLines, { key });
    await batchWhen(bench.gateway, id, ({ request_counts: counts }) => counts.completed > 0, key);
    const projects: Body = await (await bench.gateway.request('/v1/projects', { key })).json();
    const project = `/v1/projects/${projects.data[0].id}`;
    await patch(project, key, { archived: true });
    const waits = await batchWhen(bench.gateway, id, ({ waiting_for: why }) => why === 'project_archived', key);
    expect(waits.request_counts.failed).toBe(0);
    await patch(project, key, { archived: false });
    await expectWhole(await batchEnd(bench.gateway, id, key), key);
  });
});
