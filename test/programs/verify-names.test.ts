import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { eventually } from '#test/inference/inference-gateway.ts';
import { type CliResult, runCli } from '#test/cli/run-cli.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';

/** Results of `headgate verify-books` on prices, tokens, keys and models of a gateway's own ledger. */

let gateway: TestGateway;
/** Ids of two requests, one of which was answered from the cache. */
let ids: readonly string[];

const verify = (): Promise<CliResult> => runCli(['verify-books'], { env: { DATABASE_URL: gateway.databaseUrl } });

beforeAll(async () => {
  gateway = await startGateway();
  const made = await gateway.request('/v1/keys', { body: { name: 'app', cache_responses: true } });
  const { secret } = (await made.json()) as { secret: string };
  const body = { model: 'standin-chat', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 9 };
  const answers = [];
  for (let number = 0; number < 2; number += 1) {
    const answer = await gateway.request('/v1/chat/completions', { key: secret, body });
    if (answer.status !== 200) throw new Error(await answer.text());
    await answer.arrayBuffer();
    answers.push(answer);
  }
  if (answers[1]?.headers.get('x-headgate-cache') !== 'hit') throw new Error('the second is not from the cache');
  ids = answers.map(({ headers }) => headers.get('x-request-id') ?? '');
  await eventually(async () => {
    const [row] = await gateway.db.sql`select count(*)::integer as n from usage_requests`;
    return row?.['n'] === 2;
  });
});
afterAll(() => gateway.stop());

/** The result after somebody with all rights in the database altered the ledger; the change is undone then. */
async function afterTampering(statements: string, undo: string): Promise<CliResult> {
  const run = (text: string) =>
    gateway.db.sql.begin(async (tx) => {
      await tx.unsafe('set local session_replication_role = replica');
      await tx.unsafe(text);
    });
  await run(statements);
  try {
    return await verify();
  } finally {
    await run(undo);
  }
}

describe('headgate verify-books for requests of a gateway', () => {
  it('passes, with a cache hit among them', async () => {
    expect(await verify()).toMatchObject({ code: 0, stdout: expect.stringContaining('all valid') });
  });

  it('names a record whose tokens and sums were altered together', async () => {
    const alter = (by: string): string =>
      `update usage_requests set output_tokens = output_tokens ${by} where id = '${ids[0]}';
       update usage_hourly set output_tokens = output_tokens ${by}; update usage_daily set output_tokens = output_tokens ${by}`;
    const { code, stdout } = await afterTampering(alter('+ 1'), alter('- 1'));
    expect(code).toBe(1);
    expect(stdout).toMatch(
      new RegExp(`${ids[0]}: the cost of this request differs from its tokens at its price \\(\\d+ pico-dollars`),
    );
    expect(stdout).toMatch(/: 1 findings$/m);
  });

  it.each([
    ['a price', 'update price_versions set output_per_mtok_micro_usd = output_per_mtok_micro_usd %', '+ 1', '- 1'],
    ['the name of a model', 'update usage_names set name = % where name =', "'x'", "'standin-chat'"],
  ])('names the record when %s was altered', async (what, statement, there, back) => {
    const text = (to: string, from: string): string =>
      what === 'a price' ? statement.replace('%', to) : `${statement.replace('%', to)} ${from}`;
    const { code, stdout } = await afterTampering(text(there, back), text(back, there));
    expect(code).toBe(1);
    expect(stdout).toContain(`${ids[0]}: the cost of this request differs from its tokens at its price`);
  });

  it.each([
    ['usage_requests set currency =', "'EUR'", 'null', /currency EUR, should be USD/],
    ['price_versions set currency =', "'EUR'", "'USD'", /price version \S+ is in EUR, should be USD/],
    ['usage_requests set choices =', '-3', 'null', /-3 answers to each prompt/],
    ['usage_requests set choices =', '1', 'null', /1 answers to each prompt/],
    ['usage_requests set choices =', '32767', 'null', /32767 answers to each prompt/],
  ])('names the record after "update %s %s"', async (column, altered, was, said) => {
    const { code, stdout } = await afterTampering(`update ${column} ${altered}`, `update ${column} ${was}`);
    expect([code, stdout]).toEqual([1, expect.stringMatching(said)]);
    expect(stdout).toContain(ids[0]);
  });

  it('reports usage whose key was replaced, and a record whose price is missing', async () => {
    const [used] = await gateway.db.sql<{ key: number; price_version: number; id: string; price: string }[]>`
      select r.key, r.price_version, k.id::text, p.id::text as price from usage_requests r
      join usage_ids k on k.code = r.key join usage_ids p on p.code = r.price_version where r.id = ${ids[0] ?? ''}`;
    const other = '01999999-0000-7000-8000-000000000001';
    const set = (code: number | undefined, id: string | undefined): string =>
      `update usage_ids set id = '${id}' where code = ${code}`;
    const key = await afterTampering(set(used?.key, other), set(used?.key, used?.id));
    expect(key.stdout).toContain(
      `key_${other.replaceAll('-', '')}: usage of the organization is stored under this key, which belongs to`,
    );
    expect(key.code).toBe(1);
    const price = await afterTampering(set(used?.price_version, other), set(used?.price_version, used?.price));
    expect(price.stdout).toContain(
      `${ids[0]}: the cost of this request differs from its tokens at its price (price version ${other}`,
    );
    const code = `where code = ${used?.price_version}`;
    const gone = await afterTampering(
      `delete from usage_ids ${code}`,
      `insert into usage_ids (code, id) overriding system value values (${used?.price_version}, '${used?.price}')`,
    );
    expect(gone.stdout).toContain(
      `${ids[0]}: usage refers by number to a model, key or other name that is missing in the database (price version`,
    );
    expect(await verify()).toMatchObject({ code: 0 });
  });
});
