import { describe, expect, it } from 'vitest';
import { makeKey, openReuse } from '#test/cache/caching-key.ts';
import { type Asked, answerText, tokensPerText } from './embedding-servers.ts';
import { type Body, errorOf, eventually, openOrganization } from '#test/inference/inference-gateway.ts';
import { costOf, expectWhole, textsOf, useTexts } from './texts-bench.ts';

const bench = useTexts();

describe('the records of many texts', () => {
  it("are one record and one ledger entry with the engines' counts, and no hold remains", async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    const counted = (one: Asked) =>
      answerText(one.id, one.numbers, {
        usage: {
          prompt_tokens: 1000 + (one.numbers[0] ?? 0),
          total_tokens: 1000 + (one.numbers[0] ?? 0),
          prompt_tokens_details: { cached_tokens: 100 },
          made_up: { of: 0.25, name: 'kept' },
        },
      });
    bench.servers.onAsked = (one) => one.send(200, counted(one));
    const answer = await bench.embed({ input: textsOf(300), usage: { include: true } }, { key });
    const tokens = 3 * 1000 + 0 + 100 + 200;
    const { usage }: Body = await answer.json();
    const record = await bench.recordOf(answer, key);
    expect(usage).toEqual({
      prompt_tokens: tokens,
      total_tokens: tokens,
      prompt_tokens_details: { cached_tokens: 300 },
      made_up: { of: 0.75, name: 'kept' },
      cost: Number(record.cost),
    });
    const cost = ((tokens - 300) * 0.1 + 300 * 0.05) / 1e6;
    expect(Number(record.cost)).toBeCloseTo(cost, 12);
    expect(record).toMatchObject({ input_tokens: tokens, input_cached_tokens: 300, usage_source: 'engine' });
    expect(await bench.wallet(key)).toMatchObject({ held: '0' });
    expect(Number((await bench.wallet(key)).balance)).toBeCloseTo(1 - cost, 12);
    const records: Body = await (await bench.gateway.request('/v1/usage/requests', { key })).json();
    const ledger: Body = await (await bench.gateway.request('/v1/wallet/ledger', { key })).json();
    expect(records.data).toHaveLength(1);
    expect(ledger.data.filter(({ amount }: Body) => Number(amount) < 0)).toHaveLength(1);
  });

  it('charge the computed parts when an engine refuses another part, and abort the others', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    bench.servers.onAsked = (one) => {
      if (one.numbers[0] === 0) one.answer();
    };
    const answer = bench.embed({ input: textsOf(2000) }, { key });
    await expect.poll(() => bench.servers.open.length).toBe(6);
    const [bad, ...others] = bench.servers.open;
    bad?.send(400, '{"error":{"message":"Token id 9 is out of vocabulary","param":null,"code":400}}');
    const error = await errorOf(await answer);
    const { numbers = [] } = bad ?? {};
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'input' });
    expect(error.message).toContain(`one of "input[${numbers[0]}]" to "input[${numbers.at(-1)}]"`);
    await expect.poll(() => others.every(({ left }) => left)).toBe(true);
    expect(bench.servers.asked).toHaveLength(7);
    const record = await bench.recordOf(await answer, key);
    const tokens = 125 * tokensPerText;
    expect(record).toMatchObject({ outcome: 'failed', status: 400, input_tokens: tokens, usage_source: 'last_seen' });
    expect(Number(record.cost)).toBeCloseTo(costOf(tokens), 12);
    expect(Number((await bench.wallet(key)).balance)).toBeCloseTo(1 - costOf(tokens), 12);
    expect(await bench.wallet(key)).toMatchObject({ held: '0' });
    const noted = () =>
      bench.gateway.db.sql`select prompt_tokens::int as tokens, requests::int, uncounted::int from engine_requests
        where model = 'three' and kind = 'undelivered' order by replica`;
    // How much of these five was computed nobody knows.
    await expect.poll(async () => sumOf(await noted(), ({ uncounted }) => uncounted)).toBe(5);
    expect(sumOf(await noted(), ({ tokens: known }) => known)).toBe(0);
  });

  it('write off the computed parts when an engine fails at another part', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    bench.single.onAsked = (one) => {
      if (one.numbers.includes(299)) one.send(200, '{"data":[]}');
      else one.answer();
    };
    const answer = await bench.embed({ model: 'one', input: textsOf(300) }, { key });
    expect(await errorOf(answer)).toMatchObject({ status: 502 });
    const record = await bench.recordOf(answer, key);
    const tokens = 200 * tokensPerText;
    expect(record).toMatchObject({ outcome: 'failed', cost: '0', input_tokens: tokens });
    expect(Number(record.written_off)).toBeCloseTo(costOf(tokens), 12);
    expect(await bench.wallet(key)).toMatchObject({ balance: '1', held: '0' });
  });

  it.each<[string, number, string]>([
    ['refuses', 400, '{"error":{"message":"made up","code":400}}'],
    ['fails at', 502, '{}'],
  ])(
    "count the computed parts against the key's token limit when an engine %s another part",
    async (_, status, text) => {
      const { key } = await openOrganization(bench.gateway, '1');
      const limited = await makeKey(bench, key, { tokens_per_minute: 4000 });
      bench.single.onAsked = (one) => {
        if (one.numbers.includes(1279)) one.send(status === 400 ? 400 : 500, text);
        else one.answer();
      };
      const ask = (): Promise<Response> => bench.embed({ model: 'one', input: textsOf(1280) }, { key: limited.secret });
      expect([(await ask()).status, (await ask()).status]).toEqual([status, 429]);
    },
  );

  it('charge the answered parts when the client leaves, and abort the rest at once', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    bench.servers.onAsked = (one) => {
      if (bench.servers.asked.length <= 4) one.answer();
    };
    const leaving = new AbortController();
    const answer = bench.embed({ input: textsOf(2000) }, { key, signal: leaving.signal });
    await expect.poll(() => bench.servers.open.length).toBe(6);
    leaving.abort();
    await expect(answer).rejects.toThrow('aborted');
    await expect.poll(() => bench.servers.open.length).toBe(0);
    const id = bench.servers.asked.find(({ numbers }) => numbers[0] === 0)?.id ?? '';
    const record = await bench.record(id, key);
    const tokens = 4 * 125 * tokensPerText;
    expect(record).toMatchObject({ outcome: 'aborted', status: 499, input_tokens: tokens, usage_source: 'last_seen' });
    expect(Number(record.cost)).toBeCloseTo(costOf(tokens), 12);
    expect(bench.servers.asked).toHaveLength(10);
    await expect.poll(() => bench.wallet(key)).toMatchObject({ held: '0' });
  });

  it('charge parts whose answer has begun when the client leaves', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    bench.servers.onAsked = (one) => {
      if (bench.servers.asked.length <= 2) one.begin();
    };
    const leaving = new AbortController();
    const answer = bench.embed({ input: textsOf(2000) }, { key, signal: leaving.signal });
    await expect.poll(() => bench.servers.open.length).toBe(6);
    const [first, second, ...others] = bench.servers.asked;
    await beginningsAreRead();
    leaving.abort();
    await expect(answer).rejects.toThrow('aborted');
    await expect.poll(() => others.every(({ left }) => left)).toBe(true);
    expect(bench.servers.open).toEqual([first, second]);
    first?.answer();
    second?.answer();
    const record = await bench.record(bench.servers.asked.find(({ numbers }) => numbers[0] === 0)?.id ?? '', key);
    expect(record).toMatchObject({ outcome: 'aborted', input_tokens: 2 * 125 * tokensPerText });
    await expect.poll(() => bench.wallet(key)).toMatchObject({ held: '0' });
  });

  it('charge the answered parts when the key is revoked', async () => {
    const organization = await openOrganization(bench.gateway, '1');
    const made = await makeKey(bench, organization.key, {});
    bench.servers.onAsked = (one) => {
      if (bench.servers.asked.length <= 2) one.answer();
    };
    const answer = bench.embed({ input: textsOf(2000) }, { key: made.secret });
    await expect.poll(() => bench.servers.open.length).toBe(6);
    await bench.gateway.request(`/v1/keys/${made.id}`, { method: 'DELETE', key: organization.key });
    expect(await errorOf(await answer)).toMatchObject({ status: 401, code: 'unauthorized' });
    expect(bench.servers.open).toEqual([]);
    const record = await bench.recordOf(await answer, organization.key);
    expect(record).toMatchObject({ outcome: 'ended', input_tokens: 2 * 125 * tokensPerText });
    expect(await bench.wallet(organization.key)).toMatchObject({ held: '0' });
  });
});

/** A request that is sent now and answered has come later than what is written already. */
async function beginningsAreRead(): Promise<void> {
  const few = bench.embed({ input: ['text 0'] });
  await expect.poll(() => bench.servers.asked.filter(({ numbers }) => numbers.length === 1).length).toBe(1);
  bench.servers.asked.find(({ numbers }) => numbers.length === 1)?.answer();
  await (await few).text();
}

function sumOf(rows: readonly Body[], read: (row: Body) => number): number {
  return rows.reduce((sum, row) => sum + read(row), 0);
}

describe('the answer to many texts', () => {
  it('comes from the cache when repeated', async () => {
    const { key } = await openReuse(bench, { cache_responses: true });
    const body = { input: textsOf(300), user: `${Math.random()}` };
    const first = await bench.embed(body, { key });
    const text = await first.text();
    const again = await bench.embed(body, { key });
    expect([first, again].map(({ headers }) => headers.get('x-headgate-cache'))).toEqual(['miss', 'hit']);
    expect(await again.text()).toBe(text);
    expect(bench.servers.asked).toHaveLength(3);
  });

  it('is stored for an Idempotency-Key, runs on when its client leaves, and is billed once', async () => {
    const { key } = await openOrganization(bench.gateway, '1');
    bench.servers.onAsked = () => undefined;
    const leaving = new AbortController();
    const options = { key, headers: { 'idempotency-key': 'many texts' } };
    const left = bench.embed({ input: textsOf(1000) }, { ...options, signal: leaving.signal });
    await expect.poll(() => bench.servers.open.length).toBe(6);
    leaving.abort();
    await expect(left).rejects.toThrow('aborted');
    bench.servers.onAsked = (one) => one.answer();
    for (const one of bench.servers.open) one.answer();
    const again = await bench.embed({ input: textsOf(1000) }, options);
    expect(again.headers.get('idempotent-replayed')).toBe('true');
    expectWhole(await again.json(), 1000);
    expect(bench.servers.asked).toHaveLength(8);
    expect(Number((await bench.wallet(key)).balance)).toBeCloseTo(1 - costOf(2000), 12);
  });

  it('is stored with its request', async () => {
    const { key, managementKey } = await openReuse(bench, { store_requests: true });
    const input = textsOf(300);
    const answer = await bench.embed({ input }, { key });
    const text = await answer.text();
    const content = `/v1/usage/requests/${answer.headers.get('x-request-id')}/content`;
    const stored: Body = await eventually(async () => {
      const found = await bench.gateway.request(content, { key: managementKey });
      return found.status === 200 ? found.json() : null;
    });
    expect(stored.request.input).toEqual(input);
    expect(stored.response).toEqual(JSON.parse(text));
  });

  it('has the same headers as any other answer', async () => {
    const answer = await bench.embed({ input: textsOf(300) });
    await answer.text();
    const few = await bench.embed({ input: textsOf(1) });
    await few.text();
    const names = ({ headers }: Response) => [...headers.keys()].toSorted();
    expect(names(answer)).toEqual(names(few));
    expect(answer.headers.get('x-headgate-start')).toBe('warm');
  });
});
