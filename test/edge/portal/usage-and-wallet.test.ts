import { beforeAll, describe, expect, it } from 'vitest';
import { parseId, uuidTimeMs } from '#base/id.ts';
import { parseDecimal, PICO_DIGITS } from '#base/money.ts';
import {
  type Body,
  eventually,
  openOrganization,
  standinFile,
  useInference,
} from '#test/inference/inference-gateway.ts';
import { send, type Shown, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

const bench = useInference(() => ({ engines: { chat: standinFile('chat') } }));
let admin: Visitor;

beforeAll(async () => {
  admin = await signInVisitor(bench.gateway);
});

/** Asks as a key, and waits for what it cost. */
async function ask(key = bench.gateway.key): Promise<Body> {
  const answer = await bench.chat({ model: 'chat', max_tokens: 20 }, { key });
  await answer.text();
  return bench.recordOf(answer);
}

async function makeKey(fields: object): Promise<Body> {
  return (await bench.post('/v1/keys', fields)).json();
}

const csv = (visitor: Visitor, query: string): Promise<Shown> => visitor.get(`/portal/usage/requests.csv${query}`);
const idsIn = ({ text }: Shown): string[] =>
  [...text.matchAll(/\/portal\/usage\/([0-9a-f-]{36})"/g)].map(([, id]) => id ?? '');

describe('the usage page', () => {
  it('shows the number of rejected requests', async () => {
    const { id, secret: key } = await makeKey({ name: 'refused' });
    for (let index = 0; index < 2; index += 1) {
      expect((await bench.chat({ model: 'nothing', max_tokens: 20 }, { key })).status).toBe(400);
    }
    await eventually(async () => (await admin.get(`/portal/usage?key=${id}`)).text.includes('2 more rejected'));
  });

  it('shows a member only their own keys: page, sums, single requests and CSV', async () => {
    const member = await signInVisitor(bench.gateway);
    const others = await ask();
    const { sql } = bench.gateway.db;
    const [{ id: userId } = { id: '' }] = await sql<
      { id: string }[]
    >`select id from users where platform_role = 'admin'`;
    const body = { name: 'Other', email: 'other@example.com', password: 'long enough for 2 of us' };
    const made: Body = await (await bench.post('/v1/users', body)).json();
    const otherId = parseId('user', made.id);
    expect(otherId).not.toBeNull();
    // From now on the keys that there are act for somebody else.
    await sql`update api_keys set user_id = ${otherId}`;
    await sql`update users set platform_role = 'user' where id = ${userId}`;
    await sql`update memberships set role = 'member' where user_id = ${userId}`;
    try {
      expect(idsIn(await member.get('/portal/usage'))).toEqual([]);
      // The wallet is the organization's: what others asked is a line of it, and leads nowhere.
      const ledger = await member.get('/portal/wallet?type=usage');
      expect([ledger.text.includes('one request'), idsIn(ledger)]).toEqual([true, []]);
      const { url } = bench.gateway;
      const sent = await send(`${url}/portal/playground/chat`, {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          cookie: member.cookie,
          origin: url,
          'x-form-token': member.formToken,
        },
        body: JSON.stringify({ model: 'chat', max_tokens: 5, messages: [{ role: 'user', content: 'Mine' }] }),
      });
      const own = String(sent.headers['x-request-id']);
      await eventually(async () => idsIn(await member.get('/portal/usage')).includes(own));
      expect(idsIn(await member.get('/portal/usage?outcome=completed'))).toEqual([own]);
      expect((await member.get('/portal/usage?range=7&by=key_id')).text).toMatch(/Requests<\/dt>\s*<dd>1<\/dd>/);
      expect(
        (await csv(member, '')).text
          .split('\r\n')
          .slice(1, -1)
          .map((line) => line.slice(0, 36)),
      ).toEqual([own]);
      const pages = [own, others.id].map((id: string) => member.get(`/portal/usage/${id}`));
      expect((await Promise.all(pages)).map(({ status }) => status)).toEqual([200, 404]);
      expect((await member.get(`/portal/usage?key=${others.key_id}`)).text).toContain('No matching requests');
    } finally {
      await sql`update users set platform_role = 'admin' where id = ${userId}`;
      await sql`update memberships set role = 'owner' where user_id = ${userId}`;
      await sql`update api_keys set user_id = ${userId}`;
    }
  });

  it('draws the five keys with the highest spend and the sum of the others, and lists each key', async () => {
    const names = Array.from({ length: 7 }, (_, index) => `drawn ${index}`);
    const keys: Body[] = [];
    for (const name of names) {
      const key = await makeKey({ name });
      keys.push(key);
      await ask(key.secret);
      await bench.gateway.request(`/v1/keys/${key.id}`, { method: 'DELETE' });
    }
    const { text } = await admin.get('/portal/usage?range=7&by=key_id');
    expect(text).toMatch(/\d+ others/);
    const rows = /Sums by key[\s\S]*?<\/table>/.exec(text)?.[0] ?? '';
    for (const name of names) expect(rows).toContain(name);
    const [cost, ...costs] = [...rows.matchAll(/\$(\d+\.\d+)\s*<\/td>\s*<\/tr>/g)]
      .map(([, usd = '']) => parseDecimal(usd, PICO_DIGITS) ?? 0n)
      .toReversed();
    expect(costs.reduce((sum, one) => sum + one, 0n)).toBe(cost);
    for (const query of [`key=${keys[0].id}`, `key=${keys[0].id}&by=key_id`, `key=${keys[0].id}&model=chat`])
      expect((await admin.get(`/portal/usage?range=7&${query}`)).text).toMatch(/Requests<\/dt>\s*<dd>1<\/dd>/);
    expect((await admin.get(`/portal/usage?range=7&key=${keys[0].id}&model=none`)).text).toContain('No requests in');
  });

  it('has a table with the number of every bar, in all parts', async () => {
    const { secret: key } = await makeKey({ name: 'drawn <b>too</b>' });
    await ask(key);
    await ask();
    for (const measure of ['cost', 'tokens']) {
      const { text } = await admin.get(`/portal/usage?range=7&by=key_id&measure=${measure}`);
      const drawn = /data-chart="([^"]*)"/.exec(text)?.[1] ?? '';
      const { series } = JSON.parse(drawn.replaceAll('&quot;', '"').replaceAll('&amp;', '&')) as {
        series: { name: string; values: number[]; labels: string[] }[];
      };
      const escaped = (name: string): string => name.replaceAll(/&(lt|gt);/g, '&amp;$1;');
      const bars = series.flatMap(({ name, values, labels }) =>
        labels.filter((_, index) => values[index] !== 0).map((label) => `${escaped(name)}: ${label}`),
      );
      expect(bars.length).toBeGreaterThan(1);
      const rows = /Chart values[^]*?<\/table>/.exec(text)?.[0] ?? '';
      const cells = [...rows.matchAll(/<td[^>]*data-title="([^"]*)"[^>]*>([^<]*)</g)].map(
        ([, name = '', value = '']) => `${name}: ${value.trim()}`,
      );
      for (const bar of bars) expect(cells).toContain(bar);
    }
  });

  it("downloads the API's export with the filters of the page", async () => {
    const key = await makeKey({ name: 'for the export' });
    const record = await ask(key.secret);
    await ask();
    const shown = await csv(admin, `?range=7&key=${key.id}`);
    expect(shown.headers['content-type']).toContain('text/csv');
    expect(shown.headers['content-disposition']).toMatch(
      /^attachment; filename="usage-\d{4}-\d\d-\d\d-to-\d{4}-\d\d-\d\d\.csv"$/,
    );
    const exported = await bench.gateway.request(`/v1/usage/requests?key_id=${key.id}`, {
      headers: { accept: 'text/csv' },
    });
    expect(shown.text).toBe(await exported.text());
    expect(shown.text).toContain(record.id);
    expect((await csv(admin, '?key=none')).status).toBe(400);
    const signedOut = await send(`${bench.gateway.url}/portal/usage/requests.csv`, {
      headers: { accept: 'text/html' },
    });
    expect(signedOut.status).toBe(303);
  });

  it('covers the given days completely, and the last 30 days when they are invalid', async () => {
    const { id } = await ask();
    const day = new Date(uuidTimeMs(id)).toISOString().slice(0, 10);
    const ofDay = await admin.get(`/portal/usage?range=dates&from=${day}&until=${day}&by=key_id`);
    expect(idsIn(ofDay)).toContain(id);
    // A bar for each hour of it.
    expect(ofDay.text).toMatch(/\d\d:00 UTC/);
    expect(idsIn(await admin.get('/portal/usage?range=dates&from=2026-01-01&until=2026-01-02'))).toEqual([]);
    for (const query of [
      'from=2026-02-30',
      'from=&until=',
      'from=2026-01-02&until=2026-01-01',
      'from=9999-01-01&until=9999-01-02',
    ]) {
      const shown = await admin.get(`/portal/usage?range=dates&${query}`);
      expect([query, shown.status, idsIn(shown).includes(id)]).toEqual([query, 200, true]);
    }
    for (const range of ['today', 'yesterday', '7', '90', 'month', 'last-month']) {
      expect([range, (await admin.get(`/portal/usage?range=${range}`)).status]).toEqual([range, 200]);
    }
  });

  it('uses typed days over the former range, and a newly selected range over the days', async () => {
    const { id } = await ask();
    const january = 'from=2026-01-01&until=2026-01-02';
    const typed = await admin.get(`/portal/usage?range=30&shown=30&${january}`);
    expect(idsIn(typed)).toEqual([]);
    expect(typed.text).toMatch(/<option value="dates" selected/);
    const chosen = await admin.get(`/portal/usage?range=30&shown=dates&${january}`);
    expect(idsIn(chosen)).toContain(id);
    expect(chosen.text).not.toContain('2026-01-01');
  });

  it('draws no future days and no thousands of empty ones, for any period', async () => {
    await ask();
    for (const days of ['from=1970-01-01&until=9999-12-30', 'from=1970-01-01']) {
      const { status, text } = await admin.get(`/portal/usage?range=dates&${days}`);
      expect([days, status]).toEqual([days, 200]);
      // One, unless a day has ended since this file began.
      expect(text.split('<g>').length - 1).toBeLessThanOrEqual(2);
    }
  });

  it("shows how tokens times price add up to a request's cost, to the pico-dollar", async () => {
    const { id, cost } = await ask();
    const { text } = await admin.get(`/portal/usage/${id}`);
    const table = text.slice(text.indexOf('id="cost-title"'));
    const pico = (written = ''): bigint => parseDecimal(written, PICO_DIGITS) ?? -1n;
    const rows = [
      ...table.matchAll(
        /<td [^>]*class="number"[^>]*>([\d,]+)<\/td>\s*<td [^>]*>× \$([\d.]+)<\/td>\s*<td [^>]*>= \$([\d.]+)</g,
      ),
    ];
    expect(rows).toHaveLength(3);
    for (const [, tokens = '', price, amount] of rows) {
      expect(BigInt(tokens.replaceAll(',', '')) * pico(price)).toBe(pico(amount));
    }
    expect(rows.reduce((sum, [, , , amount]) => sum + pico(amount), 0n)).toBe(pico(cost));
  });

  it('explains a charge whose response the client did not get, because its record took too long', async () => {
    const { id } = await ask();
    const text = 'The client got the error <code>billing_unavailable</code>';
    expect((await admin.get(`/portal/usage/${id}`)).text).not.toContain(text);
    // The last three bytes are the milliseconds that the record took: longer than HEADGATE_SETTLE_SECONDS allows.
    await bench.gateway.db.sql`
      update usage_requests set facts = overlay(facts placing ${Buffer.from('007559', 'hex')} from length(facts) - 2)
      where id = ${id}`;
    const page = (await admin.get(`/portal/usage/${id}`)).text.replaceAll(/\s+/g, ' ');
    expect(page).toContain(text);
    expect(page).toContain('recording its cost took 30.04 s, and a response waits at most 30.00 s for that');
  });

  it('shows the stored prompt and answer of a request as text, and deletes them', async () => {
    const key = await makeKey({ name: 'keeps', store_requests: true });
    const content = '<script>alert(1)</script>';
    const answer = await bench.chat(
      { model: 'chat', max_tokens: 5, messages: [{ role: 'user', content }] },
      { key: key.secret },
    );
    await answer.text();
    const { id } = await bench.recordOf(answer);
    const kept = await admin.get(`/portal/usage/${id}`);
    expect(kept.text).toContain('&lt;script&gt;alert(1)&lt;/script&gt;');
    expect(kept.text).not.toContain(content);
    const forged = await admin.post(`/portal/usage/${id}/content/delete`, { form_token: 'x' });
    expect(forged.status).toBe(403);
    const deleted = await admin.post(`/portal/usage/${id}/content/delete`);
    expect(deleted.headers.location).toBe(`/portal/usage/${id}?notice=deleted`);
    expect((await admin.get(`/portal/usage/${id}`)).text).toContain('No content is stored for this request');
    expect((await bench.gateway.request(`/v1/usage/requests/${id}/content`)).status).toBe(404);
    expect((await admin.post(`/portal/usage/${id}/content/delete`)).status).toBe(404);
  });
});

describe('the wallet page', () => {
  const balanceOf = async (id: string): Promise<string> =>
    ((await (await bench.gateway.request(`/v1/wallet?organization_id=${id}`)).json()) as Body).balance;

  it("adjusts another organization's balance up and down, once for each reference, and never below zero", async () => {
    const { id } = await openOrganization(bench.gateway, '5');
    const correct = (amount: string, reference: string, reason = 'counted twice') =>
      admin.post('/portal/wallet/adjustments', { amount, reference, reason, organization_id: id });
    const refused = [
      await correct('-6', 'too-much'),
      await correct('0', 'nothing'),
      await correct('ten', 'words'),
      await correct('-1', 'no-reason', ''),
      await admin.post('/portal/wallet/adjustments', {
        amount: '1',
        reference: 'r',
        reason: 'x',
        organization_id: 'org_no',
      }),
    ];
    expect(refused.map(({ status }) => status)).toEqual([409, 400, 400, 400, 404]);
    expect(refused[0]?.text).toContain('an adjustment cannot reduce it below zero');
    expect(await balanceOf(id)).toBe('5');
    const booked = await correct('-1.50', 'ticket-7');
    expect(booked.headers.location).toBe(`/portal/wallet?notice=adjusted&organization_id=${id}`);
    expect((await correct('-1.50', 'ticket-7')).headers.location).toContain('notice=repeated');
    await admin.post('/portal/wallet/credits', { amount: '2', reference: 'gift', note: '', organization_id: id });
    expect(await balanceOf(id)).toBe('5.5');
    const shown = await admin.get(`/portal/wallet?organization_id=${id}&type=adjustment`);
    expect(shown.text).toMatch(/adjustment[\s\S]*ticket-7[\s\S]*counted twice[\s\S]*−\$1\.50/);
    expect(shown.text).toContain(`You are viewing the organization <code>${id}</code>`);
  });

  it('warns, also on the overview, before the spend of the last seven days uses up the balance', async () => {
    await ask();
    expect((await admin.get('/portal/wallet')).text).toMatch(/at the rate of the last 7 days/);
    expect((await admin.get('/')).text).not.toContain('The balance is low');
    const wallet: Body = await bench.wallet();
    const week: Body = await (await bench.gateway.request('/v1/usage/summary?from=2026-01-01')).json();
    // As much is left as two such days cost.
    const left = (Number(week.totals.cost) / 7) * 2;
    const amount = `-${(Number(wallet.balance) - left).toFixed(12)}`;
    expect(
      (await bench.post('/v1/wallet/adjustments', { amount, reference: 'nearly-all', reason: 'test' })).status,
    ).toBe(201);
    for (const path of ['/', '/portal/wallet'])
      expect((await admin.get(path)).text, path).toContain('The balance is low');
    const rest = `-${((await bench.wallet()) as { balance: string }).balance}`;
    await bench.post('/v1/wallet/adjustments', { amount: rest, reference: 'all', reason: 'test' });
    for (const path of ['/', '/portal/wallet'])
      expect((await admin.get(path)).text, path).toContain('The balance is used up');
    await bench.post('/v1/wallet/credits', { amount: '10', reference: 'again' });
    expect((await admin.get('/')).text).not.toContain('role="alert"');
  });
});
