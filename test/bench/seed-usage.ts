import { parseArgs } from 'node:util';
import type { Sql } from 'postgres';
import { connectDb } from '#base/database/connect-database.ts';
import { migrateDb } from '#base/database/migrations.ts';
import { isUuid, parseId, uuidv7 } from '#base/id.ts';
import { createAudit, systemAuthor } from '#core/audit/audit.ts';
import { createCodes } from '#core/metering/tables/codes.ts';
import { ensurePartitions } from '#core/metering/tables/partitions.ts';
import { createWallet, type Wallet } from '#core/wallet/wallet.ts';
import { chargeSeeded } from './seed-ledger.ts';
import { createRandom, drawSeries, spreadOverHours, type Series } from './seed-plan.ts';
import { fillMonth, type MonthPlan, type RecordsPlan, sumSeeded } from './seed-records.ts';

/**
 * `npm run seed:usage -- --rows 10000000`: a year of history for the database of DATABASE_URL, the same for the same
 * `--seed`: records, hourly and daily sums, refusals, and a ledger in which all of it is charged, so that the books are
 * proven afterwards. `--days`, `--organizations`, `--batch` (requests of one commit) and `--end` (the day on which it
 * ends, today) shape it; `--organization org_…` gives the largest share to one that is there already. No gateway may
 * write meanwhile. What it adds comes on top of what is there.
 */

const { values } = parseArgs({
  options: {
    rows: { type: 'string', default: '1000000' },
    days: { type: 'string', default: '365' },
    organizations: { type: 'string', default: '50' },
    batch: { type: 'string', default: '16' },
    seed: { type: 'string', default: '1' },
    end: { type: 'string' },
    organization: { type: 'string' },
  },
});

const dayMs = 86_400_000;

function whole(name: 'rows' | 'days' | 'organizations' | 'batch' | 'seed'): number {
  const number = Number(values[name]);
  if (!Number.isSafeInteger(number) || number < 1) throw new Error(`--${name} must be a whole number above 0`);
  return number;
}

function readEnd(): number {
  const endMs = values.end === undefined ? Date.now() - (Date.now() % dayMs) : Date.parse(`${values.end}T00:00:00Z`);
  if (Number.isNaN(endMs)) throw new Error('--end must be a day such as 2026-11-22');
  return endMs;
}

function readOrganization(): string | null {
  if (values.organization === undefined) return null;
  const id = isUuid(values.organization) ? values.organization : parseId('org', values.organization);
  if (id === null) throw new Error('--organization must be an id such as org_019ab1c2d3e47f008a1b2c3d4e5f6071');
  return id;
}

async function openWallets(
  wallet: Wallet,
  series: readonly Series[],
  orm: ReturnType<typeof connectDb>['orm'],
): Promise<void> {
  const organizationIds = [...new Set(series.map(({ organizationId }) => organizationId))];
  for (const organizationId of organizationIds) await orm.transaction((tx) => wallet.open(tx, organizationId));
}

/** Prices of the models; and keys and projects, all revoked, of an organization that somebody has made. */
async function writeNames(sql: Sql, series: readonly Series[], startMs: number): Promise<void> {
  const at = new Date(startMs).toISOString();
  const rows = JSON.stringify(
    series.map((one) => ({
      organization: one.organizationId,
      project: one.projectId,
      key: one.keyId,
      model: one.model,
      price: one.priceVersionId,
      input: one.inputPrice,
      output: one.outputPrice,
    })),
  );
  const given = `with given as (select * from json_to_recordset($1::text::json) as t(organization uuid, project uuid,
    key uuid, model text, price uuid, input bigint, output bigint))`;
  const statements = [
    `insert into models (id, first_seen_at) select distinct model, $2::timestamptz from given on conflict do nothing`,
    `insert into price_versions (id, model_id, input_per_mtok_micro_usd, cached_input_per_mtok_micro_usd,
      output_per_mtok_micro_usd, currency, effective_from)
      select distinct price, model, input, input, output, 'USD', $2::timestamptz from given on conflict do nothing`,
    `insert into projects (id, organization_id, name, visibility, created_at)
      select distinct project, organization, 'Seeded ' || project, 'private', $2::timestamptz
      from given join organizations o on o.id = organization on conflict do nothing`,
    `insert into api_keys (id, organization_id, project_id, user_id, name, prefix, last4, secret_hash, scope,
        created_at, revoked_at)
      select distinct on (key) key, organization, project,
        (select user_id from memberships m where m.organization_id = organization limit 1), 'seeded', 'seeded', '0000',
        sha256(key::text::bytea), 'inference', $2::timestamptz, $2::timestamptz
      from given join organizations o on o.id = organization on conflict do nothing`,
  ];
  for (const statement of statements) await sql.unsafe(`${given} ${statement}`, [rows, at]);
}

/** Months from `startMs` to `endMs`, each with the hours that lie in it. */
function monthsOf(hours: readonly MonthPlan['hours'][number][]): MonthPlan[] {
  const byMonth = Map.groupBy(hours, ({ startMs }) => new Date(startMs).toISOString().slice(0, 7));
  return [...byMonth].map(([month, own]) => ({ month, hours: own }));
}

async function readCodes(sql: Sql): Promise<RecordsPlan['codes']> {
  const ids = await sql<{ id: string; code: number }[]>`select id::text, code from usage_ids`;
  const names = await sql<{ name: string; code: number }[]>`select name, code from usage_names`;
  return {
    ids: new Map(ids.map(({ id, code }) => [id, code])),
    names: new Map(names.map(({ name, code }) => [name, code])),
  };
}

async function seed(sql: Sql, url: string): Promise<void> {
  const [rows, days, batch] = [whole('rows'), whole('days'), whole('batch')];
  const endMs = readEnd();
  const startMs = endMs - days * dayMs;
  const random = createRandom(whole('seed'));
  const series = drawSeries(random, { organizations: whole('organizations'), first: readOrganization(), startMs });
  const db = connectDb(url, { poolMax: 2 });
  const clock = { now: () => startMs, monotonicMs: () => performance.now() };
  const wallet = createWallet({ db, clock, audit: createAudit({ clock }) });
  const told = (text: string): void => console.log(`${(performance.now() / 1000).toFixed(1)} s: ${text}`);
  try {
    await openWallets(wallet, series, db.orm);
    await writeNames(sql, series, startMs);
    await createCodes(db).ensure(series);
    const codes = await readCodes(sql);
    for (const plan of monthsOf(spreadOverHours(random, { rows, startMs, endMs }))) {
      await fillMonth(sql, plan, { series, codes, batch, seed: whole('seed') });
      told(`records of ${plan.month}`);
    }
    await sumSeeded(sql, series);
    told('hourly and daily sums');
    await chargeSeeded(sql, { series, wallet, author: systemAuthor, told, reference: `seed ${uuidv7()}` });
    await ensurePartitions({ db, clock: { ...clock, now: Date.now } });
    await sql.unsafe('analyze');
    told('done');
  } finally {
    await db.close();
  }
}

const url = process.env['DATABASE_URL'] ?? '';
if (url === '') {
  console.error(
    'DATABASE_URL is not set: it names the database that is to be filled, such as ' +
      'postgres://user:password@127.0.0.1:5432/history. Its gateways must not run meanwhile.',
  );
  process.exit(2);
}
await migrateDb(url);
const hourMs = 3_600_000;
/** A statement fills a month. */
const limits = { lockTimeoutMs: null, statementTimeoutMs: hourMs, idleInTransactionTimeoutMs: hourMs };
const own = connectDb(url, { poolMax: 1, limits });
try {
  await seed(own.sql, url);
} finally {
  await own.close();
}
