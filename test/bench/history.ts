import { parseArgs } from 'node:util';
import { median } from './statistics.ts';

/**
 * `npm run bench:history`: how long usage and ledger take to be read, over HTTP, of the organization that the
 * management key in HEADGATE_API_KEY is of, at the gateway of HEADGATE_URL. `npm run seed:usage` makes a history;
 * `--tries` of each question are asked one after the other, after one that does not count.
 */

const { values } = parseArgs({ options: { tries: { type: 'string', default: '25' } } });
const tries = Math.max(1, Number(values.tries));
const base = process.env['HEADGATE_URL'] ?? 'http://127.0.0.1:8080';
const headers = { authorization: `Bearer ${process.env['HEADGATE_API_KEY'] ?? ''}` };

interface Group {
  readonly key_id?: string;
  readonly model?: string;
  readonly project_id?: string;
  readonly num_model_requests: number;
}

async function ask(path: string): Promise<{ ms: number; data: readonly Group[] }> {
  const since = performance.now();
  const answer = await fetch(new URL(path, base), { headers });
  const text = await answer.text();
  const ms = performance.now() - since;
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${text}`);
  const body = JSON.parse(text) as { data?: readonly Group[] };
  return { ms, data: body.data ?? [] };
}

async function measure(path: string): Promise<void> {
  await ask(path);
  const times: number[] = [];
  for (let i = 0; i < tries; i += 1) times.push((await ask(path)).ms);
  const figures = [Math.min(...times), median(times), Math.max(...times)].map((ms) => ms.toFixed(1).padStart(8));
  console.log(`${figures.join('')} ms  ${path}`);
}

const dayMs = 86_400_000;
const year = `from=${new Date(Date.now() - 365 * dayMs).toISOString().slice(0, 10)}`;
const month = new Date(Date.now() - 31 * dayMs).toISOString().slice(0, 7);

/** By how often it was used: who had most, and who had least. */
async function endsOf(dimension: 'key_id' | 'model' | 'project_id'): Promise<string[]> {
  const { data } = await ask(`/v1/usage/summary?${year}&group_by=${dimension}`);
  const sorted = data.toSorted((a, b) => b.num_model_requests - a.num_model_requests);
  return [sorted[0], sorted.at(-1)].flatMap((group) => {
    const value = group?.[dimension];
    return value === undefined ? [] : [`${dimension}=${encodeURIComponent(value)}`];
  });
}

const [keys, models, projects] = [await endsOf('key_id'), await endsOf('model'), await endsOf('project_id')];
const outcomes = ['outcome=failed', 'outcome=completed', `outcome=failed&to=${year.slice('from='.length, -2)}28`];
console.log('     min  median     max');
for (const by of ['', '&group_by=day', '&group_by=key_id', '&group_by=key_id,day', '&group_by=model,project_id']) {
  await measure(`/v1/usage/summary?${year}${by}`);
}
for (const filter of ['', ...keys, ...models, ...projects, ...outcomes, 'model=none']) {
  await measure(`/v1/usage/requests?${filter}`);
}
for (const filter of [...keys, ...models, ...projects]) await measure(`/v1/usage/requests?${filter}&outcome=failed`);
for (const filter of ['', '?type=credit', '?type=adjustment']) await measure(`/v1/wallet/ledger${filter}`);
await measure(`/v1/wallet/statements/${month}`);
