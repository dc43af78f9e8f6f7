import { readdirSync, readFileSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, inject, it } from 'vitest';
import { systemClock } from '#base/clock.ts';
import { connectDb, type Db } from '#base/database/connect-database.ts';
import { createCatalog } from '#core/catalog/catalog.ts';
import { databaseUrl, withServer } from '#test/database.ts';

const folder = new URL('../../../drizzle/', import.meta.url);
const files = readdirSync(folder)
  .filter((name) => name.endsWith('.sql'))
  .toSorted();
const dated = files.findIndex((name) => name.endsWith('_dated_bases.sql'));
const name = `headgate_test_${randomBytes(8).toString('hex')}`;

let db: Db;
beforeAll(async () => {
  const { url } = inject('testServer');
  await withServer(url, (sql) => sql`create database ${sql(name)}`);
  db = connectDb(databaseUrl(url, name), { poolMax: 2 });
  await migrate(files.slice(0, dated));
});
afterAll(async () => {
  await db.close();
  await withServer(inject('testServer').url, (sql) => sql`drop database ${sql(name)}`);
});

async function migrate(names: readonly string[]): Promise<void> {
  const texts = names.map((one) => readFileSync(new URL(one, folder), 'utf8'));
  await db.sql.begin(async (tx) => {
    for (const statement of texts.flatMap((text) => text.split('--> statement-breakpoint'))) await tx.unsafe(statement);
  });
}

it('adapters keep the base that they had before the migration to dated bases', async () => {
  await db.sql`insert into models (id, first_seen_at, base_id)
    values ('chat', '2026-01-01', null), ('tuned', '2026-02-01', 'chat')`;
  await migrate(files.slice(dated));
  const catalog = createCatalog({ db, clock: systemClock, engines: [] });
  await catalog.sync();
  const bases = catalog.bases();
  expect(bases.adapters).toEqual(['tuned']);
  for (const day of ['2026-01-15', '2026-02-15']) expect(bases.at('tuned', Date.parse(day))).toBe('chat');
});
