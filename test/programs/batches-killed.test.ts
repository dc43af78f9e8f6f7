import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { parseId } from '#base/id.ts';
import { flexPricing, linesOf } from '#test/inference/batch-bench.ts';
import { eventually, externalFile } from '#test/inference/inference-gateway.ts';
import { liftLimits } from '#test/gateway.ts';
import { type BatchClient, batchClientOf, endOf, holdTable, requireSettled } from './batch-process.ts';
import { engineFile, type GatewayProcess, givenKey, type Home, useProcesses } from '#test/programs/gateway-process.ts';

/** A gateway is killed with -9 wherever it stands with a batch; the next one ends it. */

const processes = useProcesses();
const count = 16;
const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, HEADGATE_LEASE_SECONDS: '2', HEADGATE_BATCH_CONCURRENCY: '4' };
const flexEngine = engineFile('chat').replace(
  'output_per_million: 0.40',
  'output_per_million: 0.40, flex_multiplier: 0.5',
);
const text = linesOf(count, { body: { max_tokens: 10, standin: { output_tokens: 10, tpot_ms: 15 } } });

let home: Home;
let databaseUrl: string;
let db: Db;
let gateway: GatewayProcess;

beforeEach(async () => {
  home = processes.home({ chat: flexEngine });
  databaseUrl = await processes.database();
  db = connectDb(databaseUrl);
});
afterEach(() => db.close());

async function startGateway(more: Readonly<Record<string, string>> = {}): Promise<BatchClient> {
  gateway = processes.run({ home, databaseUrl, env: { ...env, ...more } });
  const url = await gateway.url();
  await liftLimits(url, givenKey);
  return batchClientOf(url);
}

async function kill(): Promise<void> {
  gateway.signal('SIGKILL');
  await gateway.exited;
}

/** The next gateway ends the batch; each line has one result, and is charged once. */
async function requireEnd(id: string, status: string): Promise<number> {
  const client = await startGateway();
  const batch = await endOf(client, id);
  expect(batch.status).toBe(status);
  const { output } = await requireSettled(client, batch, { count, paidUsd: 10 });
  return output.length;
}

const answered = async (): Promise<number> => {
  const [row] = await db.sql<{ count: string }[]>`select count(*) from idempotency_keys where state = 'done'`;
  return Number(row?.count);
};

/** Begins a batch, and kills its gateway when some of its answers are charged, and not noted. */
async function killBeforeNotes(): Promise<{ readonly id: string; readonly charged: number }> {
  const client = await startGateway();
  const id = await client.start(text);
  await eventually(async () => (await client.read(id)).request_counts.completed > 1);
  const held = await holdTable(db, 'batch_lines');
  const before = await answered();
  await held.awaited();
  await eventually(async () => (await answered()) > before + 1);
  const { request_counts: counts } = await client.read(id);
  await kill();
  await held.release();
  const charged = await answered();
  expect(charged).toBeGreaterThan(counts.completed);
  return { id, charged };
}

/** An engine that answers each request the same, once the test lets it, with more than a client's key would keep. */
async function startLargeEngine() {
  const content = randomBytes(9_000_000).toString('hex').repeat(2);
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  const choices = [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }];
  const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<undefined>();
  let asked = 0;
  const server = createServer((incoming, outgoing) => {
    outgoing.setHeader('content-type', 'application/json');
    if (incoming.method !== 'POST') return void outgoing.end('{"data":[]}');
    asked += 1;
    incoming.resume();
    void mayAnswer.then(() => outgoing.end(JSON.stringify({ model: 'chat', choices, usage })));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
  return {
    file: externalFile('chat', url, { priced: false, lines: [flexPricing] }),
    content,
    asked: () => asked,
    answer: () => answer(undefined),
    close() {
      server.close();
      server.closeAllConnections();
    },
  };
}

/** As if so many hours had passed: those of a batch are counted by the clocks of gateways, those of keys by PostgreSQL's. */
async function pass(hours: number): Promise<void> {
  const period = `${hours} hours`;
  await db.sql`update batches set created_at = created_at - ${period}::interval,
    expires_at = expires_at - ${period}::interval, turn_at = turn_at - ${period}::interval`;
  await db.sql`update idempotency_keys set expires_at = expires_at - ${period}::interval`;
}

/** Answers that are kept beside the files of a batch. */
const keptAnswers = () => db.sql`select 1 from idempotency_keys where answer is not null`;

const expire = (id: string) =>
  db.sql`update batches set expires_at = now(), turn_at = now() where id = ${parseId('batch', id)}::uuid`;

describe('a batch whose gateway is killed', () => {
  it('right after taking it is read and run by the next gateway', async () => {
    const client = await startGateway();
    const held = await holdTable(db, 'batch_lines');
    const id = await client.start(text);
    await held.awaited();
    await kill();
    await held.release();
    expect(await requireEnd(id, 'completed')).toBe(count);
  });

  it('before recording charged answers has exactly these answers', async () => {
    const { id } = await killBeforeNotes();
    expect(await requireEnd(id, 'completed')).toBe(count);
  });

  it('before recording charged answers, then cancelled, has all charged answers and no others', async () => {
    const { id, charged } = await killBeforeNotes();
    const idle = await startGateway({ HEADGATE_BATCH_CONCURRENCY: '0' });
    expect(await idle.ask(`/v1/batches/${id}/cancel`, {})).toMatchObject({ status: 'cancelling' });
    await kill();
    expect(await requireEnd(id, 'cancelled')).toBe(charged);
  });

  it('before recording charged answers, then expired, has all charged answers and no others', async () => {
    const { id, charged } = await killBeforeNotes();
    await expire(id);
    expect(await requireEnd(id, 'expired')).toBe(charged);
  });

  it.each([25, 70])(
    'before recording charged answers, and not resumed for %d hours, has all charged answers',
    async (hours) => {
      const { id, charged } = await killBeforeNotes();
      await pass(hours);
      expect(await requireEnd(id, 'expired')).toBe(charged);
      await eventually(async () => (await keptAnswers()).length === 0);
    },
  );

  it('before recording a large charged answer has exactly this answer', async () => {
    const engine = await startLargeEngine();
    home = processes.home({ chat: engine.file });
    const client = await startGateway();
    const id = await client.start(linesOf(1));
    await eventually(async () => engine.asked() === 1);
    const held = await holdTable(db, 'batch_lines');
    engine.answer();
    await held.awaited();
    await kill();
    await held.release();
    expect(await answered()).toBe(1);
    const next = await startGateway();
    const batch = await endOf(next, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 1, failed: 0 } });
    const { output } = await requireSettled(next, batch, { count: 1, paidUsd: 10 });
    expect(output[0]?.response.body.choices[0].message.content === engine.content).toBe(true);
    expect(engine.asked()).toBe(1);
    await eventually(async () => (await keptAnswers()).length === 0);
    engine.close();
  });

  it.each(['files', 'file_chunks'])(
    'while it finalizes, at the table %s, gets its files from the next gateway',
    async (table) => {
      const client = await startGateway();
      const id = await client.start(text);
      await eventually(async () => (await client.read(id)).request_counts.completed > 1);
      const held = await holdTable(db, table);
      await held.awaited();
      expect(await client.read(id)).toMatchObject({ status: 'finalizing', output_file_id: null });
      await kill();
      await held.release();
      expect(await requireEnd(id, 'completed')).toBe(count);
    },
  );

  it('after writing all files, before publishing them, has one pair of files', async () => {
    const client = await startGateway();
    const id = await client.start(text);
    await eventually(async () => (await client.read(id)).request_counts.completed > 1);
    const parts = await holdTable(db, 'file_chunks');
    await parts.awaited();
    const lines = await holdTable(db, 'batch_lines');
    await parts.release();
    await lines.awaited();
    await kill();
    await lines.release();
    expect(await requireEnd(id, 'completed')).toBe(count);
    const seen = await db.sql`select 1 from files where purpose = 'batch_output' and written_until is null`;
    expect(seen).toHaveLength(1);
  });

  it.each(['cancelled', 'expired'])('while it is being %s ends with that status', async (how) => {
    const client = await startGateway();
    const id = await client.start(text);
    await eventually(async () => (await client.read(id)).request_counts.completed > 1);
    const held = await holdTable(db, 'files');
    if (how === 'cancelled') await client.ask(`/v1/batches/${id}/cancel`, {});
    else await db.sql`update batches set expires_at = now(), turn_at = now(), lease_until = now(), fence = fence + 1`;
    await held.awaited();
    await kill();
    await held.release();
    expect(await requireEnd(id, how)).toBeGreaterThan(1);
  });
});
