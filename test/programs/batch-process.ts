import { expect } from 'vitest';
import { parseId } from '#base/id.ts';
import type { Db } from '#base/database/connect-database.ts';
import { liftLimits } from '#test/gateway.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { givenKey } from '#test/programs/gateway-process.ts';

/** Parts of tests that take gateways, or their needs, away from their batches. */

export interface BatchClient {
  ask(path: string, body?: object): Promise<Body>;
  text(path: string): Promise<string>;
  /** @returns its id */
  start(lines: string): Promise<string>;
  read(id: string): Promise<Body>;
}

export function batchClientOf(url: string, key = givenKey): BatchClient {
  const send = async (path: string, init: Pick<RequestInit, 'method' | 'body'> = {}): Promise<Response> => {
    const type = typeof init.body === 'string' ? { 'content-type': 'application/json' } : {};
    const headers = { authorization: `Bearer ${key}`, ...type };
    const answer = await fetch(new URL(path, url), { ...init, headers });
    if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
    return answer;
  };
  const ask: BatchClient['ask'] = async (path, body) => {
    const init = body === undefined ? {} : { method: 'POST', body: JSON.stringify(body) };
    return (await send(path, init)).json();
  };
  return {
    ask,
    text: async (path) => (await send(path)).text(),
    async start(lines) {
      const form = new FormData();
      form.set('purpose', 'batch');
      form.set('file', new File([lines], 'in.jsonl'));
      const file: Body = await (await send('/v1/files', { method: 'POST', body: form })).json();
      const body = { input_file_id: file.id, endpoint: '/v1/chat/completions', completion_window: '24h' };
      return (await ask('/v1/batches', body)).id;
    },
    read: (id) => ask(`/v1/batches/${id}`),
  };
}

export interface Customer {
  readonly key: string;
  readonly keyId: string;
}

/** A new organization with 10 USD, whose key has no limits. */
export async function openCustomer(url: string): Promise<Customer> {
  const admin = batchClientOf(url);
  const { id, management_key: key } = await admin.ask('/v1/organizations', { name: `Organization ${Math.random()}` });
  await admin.ask('/v1/wallet/credits', { organization_id: id, amount: '10', reference: 'opening' });
  await liftLimits(url, key);
  const keys = await batchClientOf(url, key).ask('/v1/keys');
  return { key, keyId: parseId('key', keys.data[0].id) ?? '' };
}

const final = ['completed', 'failed', 'expired', 'cancelled'];

export const endOf = (client: BatchClient, id: string): Promise<Body> =>
  eventually(async () => {
    const batch = await client.read(id);
    return final.includes(batch.status) ? batch : null;
  });

async function linesOf(client: BatchClient, path: string | null): Promise<readonly Body[]> {
  if (path === null) return [];
  const text = await client.text(path);
  return text
    .split('\n')
    .filter((one) => one !== '')
    .map((one) => JSON.parse(one));
}

const contentOf = (fileId: string | null): string | null => (fileId === null ? null : `/v1/files/${fileId}/content`);

export interface EndedBatch {
  readonly batch: Body;
  readonly output: readonly Body[];
  readonly errors: readonly Body[];
  /** Records of its requests. */
  readonly records: readonly Body[];
}

/**
 * Reads all that is left of a batch of `count` lines, and holds it against the books: each line has one result, and
 * those are charged, once, that are answered.
 * @param paidUsd what its wallet had before
 */
export async function requireSettled(
  client: BatchClient,
  batch: Body,
  { count, paidUsd }: { readonly count: number; readonly paidUsd: number },
): Promise<EndedBatch> {
  const output = await linesOf(client, contentOf(batch.output_file_id));
  const errors = await linesOf(client, contentOf(batch.error_file_id));
  const names = [...output, ...errors].map(({ custom_id: name }): string => name);
  expect(names.toSorted()).toEqual(Array.from({ length: count }, (_, n) => `line-${n}`).toSorted());
  const failed = errors.filter(({ response }) => response !== null);
  expect(batch.request_counts).toEqual({ total: count, completed: output.length, failed: failed.length });
  // The spool of a killed gateway is posted a moment later.
  const all = await eventually(async () => {
    const found = await recordsOf(client);
    return found.filter(({ cost }) => Number(cost) > 0).length >= output.length ? found : null;
  });
  const records = all.filter(({ client_request_id: note }) => String(note).startsWith(`${batch.id}/`));
  const charged = records.filter(({ cost }) => Number(cost) > 0);
  const chargedNames = charged.map(({ client_request_id: note }) => `line-${Number(String(note).split('/')[1]) - 1}`);
  expect(chargedNames.toSorted()).toEqual(output.map(({ custom_id: name }): string => name).toSorted());
  const ids = output.map(({ response }): string => response.request_id);
  expect(ids.toSorted()).toEqual(charged.map(({ id }): string => id).toSorted());
  const cost = all.reduce((sum: number, record) => sum + Number(record.cost), 0);
  const { balance }: Body = await client.ask('/v1/wallet');
  expect(Number(balance)).toBeCloseTo(paidUsd - cost, 9);
  return { batch, output, errors, records };
}

async function recordsOf(client: BatchClient): Promise<readonly Body[]> {
  const { data }: Body = await client.ask('/v1/usage/requests?limit=100');
  return data;
}

export interface HeldTable {
  /** Waits until somebody else waits for it. */
  awaited(): Promise<unknown>;
  release(): Promise<void>;
}

/** Lets nobody write to a table, so that what comes to it stands still there. */
export async function holdTable({ sql }: Db, table: string): Promise<HeldTable> {
  const { promise: mayGo, resolve: go } = Promise.withResolvers<undefined>();
  const { promise: isHeld, resolve: held } = Promise.withResolvers<undefined>();
  const ended = sql.begin(async (tx) => {
    await tx.unsafe(`lock table ${table} in exclusive mode`);
    held(undefined);
    await mayGo;
  });
  await isHeld;
  return {
    awaited: () =>
      eventually(async () => {
        const rows = await sql`select 1 from pg_locks where relation = ${table}::regclass and not granted`;
        return rows.length > 0;
      }),
    async release() {
      go(undefined);
      await ended;
    },
  };
}
