import { parseArgs } from 'node:util';
import { connectDb } from '#base/database/connect-database.ts';
import { seedCosts } from './seed-costs.ts';
import { median } from './statistics.ts';

/**
 * `npm run bench:costs -- --nodes 10000 --per-node 12`: fills the database of DATABASE_URL with nodes that were held for
 * a year, `--per-cluster` of them in each cluster, at `--cards` dated rate cards of each of four profiles and `--rates`
 * dated conversion rates to the billing currency of their organizations, then measures over HTTP how long the gateway of
 * HEADGATE_URL, which uses that database, takes for the cost reports of the platform administrator whose management key
 * is in HEADGATE_API_KEY. `--nodes 0` adds nothing. Each report is requested once, which does not count, then `--tries`
 * times. Then it is requested once more while a small request is made again and again: "beside" is the longest that a
 * small one took.
 */

const { values } = parseArgs({
  options: {
    nodes: { type: 'string', default: '10000' },
    'per-node': { type: 'string', default: '12' },
    'per-cluster': { type: 'string', default: '50' },
    cards: { type: 'string', default: '365' },
    rates: { type: 'string', default: '365' },
    tries: { type: 'string', default: '9' },
  },
});

function whole(name: keyof typeof values, least: number): number {
  const number = Number(values[name]);
  if (!Number.isSafeInteger(number) || number < least)
    throw new Error(`--${name} must be a whole number from ${least}`);
  return number;
}

const [nodes, perNode, perCluster, cards, rates, tries] = [
  whole('nodes', 0),
  whole('per-node', 1),
  whole('per-cluster', 1),
  whole('cards', 1),
  whole('rates', 0),
  whole('tries', 1),
];
const base = process.env['HEADGATE_URL'] ?? 'http://127.0.0.1:8080';
const headers = { authorization: `Bearer ${process.env['HEADGATE_API_KEY'] ?? ''}` };
const dayMs = 86_400_000;
const toMs = Date.now() - (Date.now() % dayMs);
const fromMs = toMs - 365 * dayMs;

async function fill(url: string): Promise<void> {
  const db = connectDb(url, { poolMax: 1 });
  try {
    if (nodes > 0) await seedCosts(db.sql, { nodes, perNode, perCluster, cards, rates, fromMs, toMs });
    const [held] = await db.sql<{ nodes: string; intervals: string }[]>`
      select count(distinct node_id)::text as nodes, count(*)::text as intervals from usage_intervals`;
    console.log(`${held?.nodes ?? ''} nodes in ${held?.intervals ?? ''} intervals`);
  } finally {
    await db.close();
  }
}

interface Asked {
  readonly ms: number;
  readonly text: string;
}

async function ask(path: string): Promise<Asked> {
  const since = performance.now();
  const answer = await fetch(new URL(path, base), { headers });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text.slice(0, 500)}`);
  return { ms: performance.now() - since, text };
}

/** The longest that a small request took while something else ran. */
async function slowestBeside(run: () => Promise<void>): Promise<number> {
  const state = { isRunning: true };
  const ended = run().finally(() => {
    state.isRunning = false;
  });
  let slowest = 0;
  while (state.isRunning) slowest = Math.max(slowest, (await ask('/v1/pricing')).ms);
  await ended;
  return slowest;
}

async function measure(path: string): Promise<Asked> {
  const first = await ask(path);
  const times: number[] = [];
  for (let i = 0; i < tries; i += 1) times.push((await ask(path)).ms);
  const slowest = await slowestBeside(async () => void (await ask(path)));
  const figures = [Math.min(...times), median(times), Math.max(...times), slowest];
  const size = `${(first.text.length / 1024).toFixed(0)} KiB`.padStart(10);
  console.log(`${figures.map((ms) => ms.toFixed(1).padStart(9)).join('')} ms ${size}  ${path}`);
  return first;
}

interface Report {
  readonly organizations: readonly { readonly clusters: readonly { line_items: unknown[] }[] }[];
}

const url = process.env['DATABASE_URL'];
if (url !== undefined) await fill(url);
const day = (ms: number): string => new Date(ms).toISOString().slice(0, 10);
const year = `from=${day(fromMs)}&to=${day(toMs)}`;
console.log('      min   median      max  beside');
const alone = await slowestBeside(() => new Promise((resolve) => setTimeout(resolve, 2000)));
console.log(`${alone.toFixed(1).padStart(36)} ms             no report`);
const { organizations } = JSON.parse((await measure(`/v1/billing/costs?${year}`)).text) as Report;
await measure(`/v1/billing/costs.csv?${year}`);
await measure(`/v1/billing/costs/series?${year}&step=1d&group_by=hardware_profile`);
await measure(`/v1/billing/costs/series?${year}&step=1mo&group_by=label:team`);
await measure(`/v1/billing/costs?month=${day(toMs - 31 * dayMs).slice(0, 7)}`);
const clusters = organizations.flatMap((organization) => organization.clusters);
const lines = clusters.reduce((sum, { line_items: items }) => sum + items.length, 0);
console.log(`${organizations.length} organizations, ${clusters.length} clusters, ${lines} line items`);
