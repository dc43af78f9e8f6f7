import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { parseId } from '#base/id.ts';
import { flexPricing, linesOf } from '#test/inference/batch-bench.ts';
import { eventually, externalFile } from '#test/inference/inference-gateway.ts';
import { createTestDatabase, type TestDatabase } from '#test/database.ts';
import {
  type BatchClient,
  batchClientOf,
  type Customer,
  endOf,
  type HeldTable,
  holdTable,
  openCustomer,
  requireSettled,
} from './batch-process.ts';
import {
  clearHome,
  engineFile,
  type GatewayProcess,
  givenKey,
  type Home,
  makeHome,
  runGateway,
} from '#test/programs/gateway-process.ts';

/**
 * A gateway is killed with -9 wherever it stands with a batch; the next one ends it, and serves the next test until it
 * is killed. Each test has an organization of its own.
 */

const count = 16;
const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, HEADGATE_LEASE_SECONDS: '2', HEADGATE_BATCH_CONCURRENCY: '4' };
const flexEngine = engineFile('chat').replace(
  'output_per_million: 0.40',
  'output_per_million: 0.40, flex_multiplier: 0.5',
);
const text = linesOf(count, { body: { max_tokens: 10, standin: { output_tokens: 10, tpot_ms: 15 } } });

let home: Home;
let database: TestDatabase;
let db: Db;
let large: Awaited<ReturnType<typeof startLargeEngine>>;
let gateway: GatewayProcess | null = null;
const held: HeldTable[] = [];

beforeAll(async () => {
  large = await startLargeEngine();
  home = makeHome({ chat: flexEngine, large: large.file });
  database = await createTestDatabase();
  db = connectDb(database.url);
});
afterEach(async () => {
  for (const table of held.splice(0)) await table.release();
});
afterAll(async () => {
  await kill();
  await clearHome(home);
  await db.close();
  await database.drop();
  large.close();
});

/** The address of the gateway; the next one is started after a kill. */
function gatewayUrl(more: Readonly<Record<string, string>> = {}): Promise<string> {
  gateway ??= runGateway({ home, databaseUrl: database.url, env: { ...env, ...more } });
  return gateway.url();
}

async function kill(): Promise<void> {
  gateway?.signal('SIGKILL', 'process');
  await gateway?.exited;
  gateway = null;
}

async function hold(table: string): Promise<HeldTable> {
  const one = await holdTable(db, table);
  held.push(one);
  return one;
}

const clientOf = async ({ key }: Customer, more?: Readonly<Record<string, string>>): Promise<BatchClient> =>
  batchClientOf(await gatewayUrl(more), key);

/** The next gateway ends the batch; each line has one result, and is charged once. */
async function requireEnd(customer: Customer, id: string, status: string): Promise<number> {
  const client = await clientOf(customer);
  const batch = await endOf(client, id);
  expect(batch.status).toBe(status);
  const { output } = await requireSettled(client, batch, { count, paidUsd: 10 });
  return output.length;
}

async function answered({ keyId }: Customer): Promise<number> {
  const [row] = await db.sql<{ count: string }[]>`
    select count(*) from idempotency_keys where state = 'done' and key_id = ${keyId}`;
  return Number(row?.count);
}

/** Begins a batch, and waits until some of its lines are answered. */
async function begin(): Promise<{ readonly customer: Customer; readonly client: BatchClient; readonly id: string }> {
  const customer = await openCustomer(await gatewayUrl());
  const client = await clientOf(customer);
  const id = await client.start(text);
  await eventually(async () => (await client.read(id)).request_counts.completed > 1);
  return { customer, client, id };
}

/** Begins a batch, and kills its gateway when some of its answers are charged, and not noted. */
async function killBeforeNotes(): Promise<{
  readonly customer: Customer;
  readonly id: string;
  readonly charged: number;
}> {
  const { customer, client, id } = await begin();
  const lines = await hold('batch_lines');
  const before = await answered(customer);
  await lines.awaited();
  await eventually(async () => (await answered(customer)) > before + 1);
  const { request_counts: counts } = await client.read(id);
  await kill();
  await lines.release();
  const charged = await answered(customer);
  expect(charged).toBeGreaterThan(counts.completed);
  return { customer, id, charged };
}

/** An engine that answers each request the same, once the test lets it, with more than a client's key would keep. */
async function startLargeEngine() {
  // Longer than a replay, and compressed longer than a settlement carries.
  const content = randomBytes(4_600_000).toString('hex').padEnd(36_000_000, 'x');
  const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
  const choices = [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }];
  const { promise: mayAnswer, resolve: answer } = Promise.withResolvers<undefined>();
  let asked = 0;
  const server = createServer((incoming, outgoing) => {
    outgoing.setHeader('content-type', 'application/json');
    if (incoming.method !== 'POST') return void outgoing.end('{"data":[]}');
    asked += 1;
    incoming.resume();
    void mayAnswer.then(() => outgoing.end(JSON.stringify({ model: 'large', choices, usage })));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  const url = `http://127.0.0.1:${typeof address === 'object' && address !== null ? address.port : 0}`;
  return {
    file: externalFile('large', url, { priced: false, lines: [flexPricing] }),
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
async function pass({ keyId }: Customer, hours: number): Promise<void> {
  const period = `${hours} hours`;
  await db.sql`update batches set created_at = created_at - ${period}::interval,
    expires_at = expires_at - ${period}::interval, turn_at = turn_at - ${period}::interval where key_id = ${keyId}`;
  await db.sql`update idempotency_keys set expires_at = expires_at - ${period}::interval where key_id = ${keyId}`;
}

/** Answers that are kept beside the files of a batch. */
const keptAnswers = ({ keyId }: Customer) =>
  db.sql`select 1 from idempotency_keys where answer is not null and key_id = ${keyId}`;

const expire = (id: string) =>
  db.sql`update batches set expires_at = now(), turn_at = now() where id = ${parseId('batch', id)}::uuid`;

describe('a batch whose gateway is killed', () => {
  it('right after taking it is read and run by the next gateway', async () => {
    const customer = await openCustomer(await gatewayUrl());
    const client = await clientOf(customer);
    const lines = await hold('batch_lines');
    const id = await client.start(text);
    await lines.awaited();
    await kill();
    await lines.release();
    expect(await requireEnd(customer, id, 'completed')).toBe(count);
  });

  it('before recording charged answers has exactly these answers', async () => {
    const { customer, id } = await killBeforeNotes();
    expect(await requireEnd(customer, id, 'completed')).toBe(count);
  });

  it('before recording charged answers, then cancelled, has all charged answers and no others', async () => {
    const { customer, id, charged } = await killBeforeNotes();
    const idle = await clientOf(customer, { HEADGATE_BATCH_CONCURRENCY: '0' });
    expect(await idle.ask(`/v1/batches/${id}/cancel`, {})).toMatchObject({ status: 'cancelling' });
    await kill();
    expect(await requireEnd(customer, id, 'cancelled')).toBe(charged);
  });

  it('before recording charged answers, then expired, has all charged answers and no others', async () => {
    const { customer, id, charged } = await killBeforeNotes();
    await expire(id);
    expect(await requireEnd(customer, id, 'expired')).toBe(charged);
  });

  it.each([25, 70])(
    'before recording charged answers, and not resumed for %d hours, has all charged answers',
    async (hours) => {
      const { customer, id, charged } = await killBeforeNotes();
      await pass(customer, hours);
      expect(await requireEnd(customer, id, 'expired')).toBe(charged);
      await eventually(async () => (await keptAnswers(customer)).length === 0);
    },
  );

  it('before recording a large charged answer has exactly this answer', async () => {
    const customer = await openCustomer(await gatewayUrl());
    const client = await clientOf(customer);
    const id = await client.start(linesOf(1, { body: { model: 'large' } }));
    await eventually(async () => large.asked() === 1);
    const lines = await hold('batch_lines');
    large.answer();
    await lines.awaited();
    await kill();
    await lines.release();
    expect(await answered(customer)).toBe(1);
    const next = await clientOf(customer);
    const batch = await endOf(next, id);
    expect(batch).toMatchObject({ status: 'completed', request_counts: { completed: 1, failed: 0 } });
    const { output } = await requireSettled(next, batch, { count: 1, paidUsd: 10 });
    expect(output[0]?.response.body.choices[0].message.content === large.content).toBe(true);
    expect(large.asked()).toBe(1);
    await eventually(async () => (await keptAnswers(customer)).length === 0);
  });

  it.each(['files', 'file_chunks'])(
    'while it finalizes, at the table %s, gets its files from the next gateway',
    async (table) => {
      const { customer, client, id } = await begin();
      const files = await hold(table);
      await files.awaited();
      expect(await client.read(id)).toMatchObject({ status: 'finalizing', output_file_id: null });
      await kill();
      await files.release();
      expect(await requireEnd(customer, id, 'completed')).toBe(count);
    },
  );

  it('after writing all files, before publishing them, has one pair of files', async () => {
    const { customer, id } = await begin();
    const parts = await hold('file_chunks');
    await parts.awaited();
    const lines = await hold('batch_lines');
    await parts.release();
    await lines.awaited();
    await kill();
    await lines.release();
    expect(await requireEnd(customer, id, 'completed')).toBe(count);
    const seen = await db.sql`
      select 1 from files where purpose = 'batch_output' and written_until is null and organization_id =
        (select organization_id from batches where key_id = ${customer.keyId})`;
    expect(seen).toHaveLength(1);
  });

  it.each(['cancelled', 'expired'])('while it is being %s ends with that status', async (how) => {
    const { customer, client, id } = await begin();
    const files = await hold('files');
    if (how === 'cancelled') await client.ask(`/v1/batches/${id}/cancel`, {});
    else
      await db.sql`update batches set expires_at = now(), turn_at = now(), lease_until = now(), fence = fence + 1
        where key_id = ${customer.keyId}`;
    await files.awaited();
    await kill();
    await files.release();
    expect(await requireEnd(customer, id, how)).toBeGreaterThan(1);
  });
});
