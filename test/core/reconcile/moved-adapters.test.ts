import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type Body, eventually, standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { enoughOfTheHour } from '#test/reconcile/mixed-traffic.ts';

const lora = { lines: ['lora: [{ id: tuned, path: test/tuned-lora }]'] };

let folder: string;
let gateway: TestGateway;
beforeAll(async () => {
  await enoughOfTheHour();
  folder = writeEngines({ first: standinFile('first', lora), second: standinFile('second') });
  gateway = await startGateway({ enginesDir: folder });
});
afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

const reload = async (): Promise<void> => {
  expect((await gateway.request('/v1/admin/engines/reload', { method: 'POST' })).status).toBe(200);
};
/** Once no request runs any more, and what is read is what engines have counted. */
const reconciled = (isRead: (lines: readonly Body[]) => boolean): Promise<Body> =>
  eventually(async () => {
    const found: Body = await (await gateway.request('/v1/admin/reconcile')).json();
    const kinds = found.data.flatMap(({ explanations }: Body) => explanations.map(({ kind }: Body) => kind));
    return !kinds.includes('running') && isRead(found.data) && found;
  });

/** An engine whose file has got an adapter is renewed first: until then it refuses that, and computes nothing. */
async function ask(model: string): Promise<void> {
  const body = { model, messages: [{ role: 'user', content: `Hello ${model}` }], max_tokens: 8, n: 2 };
  await eventually(async () => {
    const answer = await gateway.request('/v1/chat/completions', { body });
    const text = await answer.text();
    expect([200, 503], text).toContain(answer.status);
    return answer.ok;
  });
}

const made = (lines: readonly Body[]): Body[] => lines.map(({ difference }) => difference.completion_tokens);

/** Its usage, with the attempts that an engine refused before it knew the adapter: those are noted a moment later. */
async function hadByAdapter(): Promise<Body> {
  const [sum] = await gateway.db.sql<Body[]>`
    select sum(requests)::int as count, sum(prompt)::int as prompt_tokens, sum(output)::int as completion_tokens from (
      select 1 as requests, input_tokens * choices as prompt, output_tokens as output
      from usage_records where model = 'tuned'
      union all
      select requests, prompt_tokens, completion_tokens from engine_requests where model = 'tuned') every`;
  return { kind: 'adapter_moved', detail: 'tuned: first, then second', ...sum };
}

it('hours before an adapter moved to another base balance, and the hour of the move is explained by its tokens', async () => {
  const { sql } = gateway.db;
  for (const model of ['first', 'tuned', 'tuned', 'second']) await ask(model);
  writeFileSync(join(folder, 'first.yaml'), standinFile('first'));
  writeFileSync(join(folder, 'second.yaml'), standinFile('second', lora));
  await reload();
  // As if that were later: then this hour is one before.
  const moved = await sql`update adapter_bases set effective_from = effective_from + interval '2 hours'
    where adapter_id = 'tuned' and base_id = 'second' returning adapter_id`;
  expect(moved).toHaveLength(1);
  await reload();
  const ends = (lines: readonly Body[]): Body => lines.map(({ model, difference }) => [model, difference]);
  const none = { cost: '0', prompt_tokens: 0, completion_tokens: 0 };
  const before = await reconciled((lines) => lines.every(({ state }) => state === 'balanced'));
  expect(before).toMatchObject({ balanced: true, unexplained: 0 });
  expect(ends(before.data)).toEqual([
    ['first', none],
    ['second', none],
  ]);

  await sql`update adapter_bases set effective_from = effective_from - interval '2 hours'
    where adapter_id = 'tuned' and base_id = 'second'`;
  await reload();
  await ask('tuned');
  // Its work there stands in the ledger with the base that it had before; probes are noted a moment later.
  const within = await reconciled((lines) => made(lines).join() === '-16,16');
  expect(within, JSON.stringify(within)).toMatchObject({ balanced: true, unexplained: 0 });
  expect(within.data.map(({ model, state }: Body) => [model, state])).toEqual([
    ['first', 'explained'],
    ['second', 'explained'],
  ]);
  const explained = await eventually(async () => {
    const all = await hadByAdapter();
    const { data }: Body = await (await gateway.request('/v1/admin/reconcile')).json();
    return data.every(({ explanations }: Body) => explanations.some((one: Body) => isDeepStrictEqual(one, all))) && all;
  });
  // More than the adapter had, and than rejected attempts may have come to before the engine knew it.
  const read: Body = await (await gateway.request('/v1/admin/reconcile')).json();
  const bounds = read.data[1].explanations.reduce((sum: number, one: Body) => sum + one.completion_tokens, 0);
  await sql`update replica_hours h set generation_tokens = h.generation_tokens + ${bounds + explained.completion_tokens}
    from replica_runs r where r.id = h.run_id and r.model = 'second'`;
  const beyond: Body = await (await gateway.request('/v1/admin/reconcile')).json();
  expect(beyond.balanced, JSON.stringify(beyond)).toBe(false);
});
