import { randomBytes } from 'node:crypto';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { type ByteServer, type SeenRequest, startByteServer } from '#test/proxy/byte-server.ts';
import { batchEnd, flexPricing, linesOf, outputOf, startBatch } from '#test/inference/batch-bench.ts';
import {
  type Body,
  eventually,
  externalFile,
  openOrganization,
  useInference,
} from '#test/inference/inference-gateway.ts';

/** Answers to lines that are too large to wait on disk with their charge: they are kept first, or nothing is charged. */

const asked: SeenRequest[] = [];
let engine: ByteServer | null = null;
const bench = useInference(async () => {
  engine = await startByteServer({ transport: 'tcp', answer: (request) => void asked.push(request) });
  const url = `http://127.0.0.1:${engine.endpoint.port}`;
  return { engines: { chat: externalFile('chat', url, { priced: false, lines: [flexPricing] }) } };
});
beforeEach(() => void (asked.length = 0));
afterAll(() => engine?.close());

/** More than the 4 MiB, compressed, that wait on disk; and more than the 32 MiB that are kept of a client's. */
const random = randomBytes(4_300_000).toString('base64');
const contents = { large: random, huge: random + 'x'.repeat(28_000_000) };

const isChat = ({ head }: SeenRequest): boolean => head.startsWith('POST /v1/chat/completions');
const chats = (): readonly SeenRequest[] => asked.filter(isChat);

/** Answers the line, once it was asked for the `time`th time. */
async function answer(content: string, time: number): Promise<void> {
  const request = await eventually(() => Promise.resolve(chats()[time - 1] ?? null));
  const usage = { prompt_tokens: 10, completion_tokens: 4, total_tokens: 14 };
  const choices = [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }];
  const body = JSON.stringify({ model: 'chat', choices, usage });
  const head = `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n`;
  request.socket.write(Buffer.from(head + body, 'latin1'));
}

/** The end of the batch, whose only line is answered with this, and charged once. @returns the records of all tries */
async function requireAnswered(id: string, key: string, content: string): Promise<readonly Body[]> {
  const batch = await batchEnd(bench.gateway, id, key);
  expect(batch).toMatchObject({ status: 'completed', request_counts: { total: 1, completed: 1, failed: 0 } });
  const [line] = await outputOf(bench.gateway, batch.output_file_id, key);
  expect(line?.response.body.choices[0].message.content === content).toBe(true);
  const { data }: Body = await (await bench.gateway.request('/v1/usage/requests', { key })).json();
  const charged = data.filter(({ cost }: Body) => Number(cost) > 0);
  expect(charged).toMatchObject([{ id: line?.response.request_id, outcome: 'completed' }]);
  expect(5 - Number((await bench.wallet(key)).balance)).toBeCloseTo(Number(charged[0].cost), 12);
  await eventually(async () => {
    const rows = await bench.gateway.db.sql`select 1 from idempotency_keys where answer is not null`;
    return rows.length === 0;
  });
  return data;
}

describe('a batch line with a large answer', () => {
  const content = contents.large;

  it.each(['large', 'huge'] as const)(
    '(%s) is sent and charged once, and its stored answer is deleted when the batch ends',
    async (size) => {
      const { key } = await openOrganization(bench.gateway, '5');
      const { id } = await startBatch(bench.gateway, linesOf(1), { key });
      await answer(contents[size], 1);
      expect(await requireAnswered(id, key, contents[size])).toHaveLength(1);
      expect(chats()).toHaveLength(1);
    },
  );

  it('is not charged when its answer cannot be stored, and is sent again', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const { id } = await startBatch(bench.gateway, linesOf(1), { key });
    await eventually(() => Promise.resolve(chats().length === 1));
    await bench.gateway.db.sql`alter table idempotency_keys add constraint refused check (answer is null)`;
    await answer(content, 1);
    await eventually(() => Promise.resolve(chats().length === 2));
    await bench.gateway.db.sql`alter table idempotency_keys drop constraint refused`;
    await answer(content, 2);
    const records = await requireAnswered(id, key, content);
    expect(records.map(({ outcome, reason, cost }) => [outcome, reason, Number(cost) > 0])).toEqual([
      ['completed', null, true],
      ['failed', 'internal_error', false],
    ]);
  });

  it('is not charged when it has lost its idempotency key to another attempt', async () => {
    const { key } = await openOrganization(bench.gateway, '5');
    const { id } = await startBatch(bench.gateway, linesOf(1), { key });
    await eventually(() => Promise.resolve(chats().length === 1));
    await bench.gateway.db
      .sql`update idempotency_keys set request_id = gen_random_uuid(), lease_until = '-infinity' where state = 'running'`;
    await answer(content, 1);
    await answer(content, 2);
    const records = await requireAnswered(id, key, content);
    expect(records.map(({ outcome, reason }) => [outcome, reason])).toEqual([
      ['completed', null],
      ['failed', 'billing_unavailable'],
    ]);
  });
});
