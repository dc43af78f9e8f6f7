import { randomUUID } from 'node:crypto';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { decidePending } from '#programs/restored-work.ts';
import { createTestDatabase } from '#test/database.ts';

let db: Db;
let drop: () => Promise<void>;
beforeEach(async () => {
  const database = await createTestDatabase();
  db = connectDb(database.url, { poolMax: 1, purpose: 'test' });
  drop = () => database.drop();
});
afterEach(async () => {
  await db.close();
  await drop();
});

async function insertRuns(statuses: readonly string[]): Promise<void> {
  for (const status of statuses) {
    const id = randomUUID();
    await db.sql`
      insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
      values (${id}, ${id}, ${id}, 'web', '', now())`;
    await db.sql`
      insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
        created_at, lease_until)
      values (${id}, ${id}, ${id}, ${id}, ${id}, 'apply', ${status}, '\\x00', now(), now() + interval '1 minute')`;
  }
}

const runs = () => db.sql`select status, failure_code, ended_at is not null as ended from runs order by status`;

it('names pending and running runs, ends them with "end", and leaves ended ones', async () => {
  await insertRuns(['PENDING', 'PLANNING', 'APPLYING', 'CANCELING', 'APPLIED', 'FAILED']);
  const before = await runs();
  await expect(decidePending(db.sql, null)).rejects.toThrow('4 runs of stacks');
  await decidePending(db.sql, 'resume');
  expect(await runs()).toEqual(before);
  await decidePending(db.sql, 'end');
  const ended = { ended: true };
  expect(await runs()).toMatchObject([
    { status: 'APPLIED', ended: false },
    { status: 'CANCELED', failure_code: null, ...ended },
    { status: 'FAILED' },
    ...[1, 2, 3].map(() => ({ status: 'FAILED' })),
  ]);
  const [failed] = await db.sql`
    select count(*)::int as count from runs where failure_code = 'INTERRUPTED' and lease_until is null and fence = 1`;
  expect(failed).toEqual({ count: 3 });
  await expect(decidePending(db.sql, null)).resolves.toBeUndefined();
});

it('finds no pending work in a database older than the tables for it', async () => {
  await db.sql`drop table batches, runs, alert_events cascade`;
  await expect(decidePending(db.sql, null)).resolves.toBeUndefined();
});

it('finds no pending alert without a recipient', async () => {
  const organization = randomUUID();
  await db.sql`
    insert into alert_events (id, organization_id, type, data, created_at)
    values (${randomUUID()}, ${organization}, 'api_key.created', '{}', now())`;
  await expect(decidePending(db.sql, null)).resolves.toBeUndefined();
  await db.sql`
    insert into webhook_endpoints (id, organization_id, url, description, enabled, secret_key_id, secret_sealed, created_at)
    values (${randomUUID()}, ${organization}, 'https://example.org', '', true, 'k', '\\x00', now())`;
  await expect(decidePending(db.sql, null)).rejects.toThrow('1 alerts');
});
