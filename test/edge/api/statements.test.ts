import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { uuidLowerBound } from '#base/id.ts';
import { readSigner } from '#base/config/signing.ts';
import { systemAuthor } from '#core/audit/audit.ts';
import { type Body, recordOf, uuidOf } from '#test/metering/recorded-usage.ts';
import { openTestBooks, type TestBooks } from '#test/metering/test-books.ts';
import { nothingHeld } from '#test/wallet/test-wallet.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { runCli } from '#test/cli/run-cli.ts';

const at = (text: string): number => Date.parse(`${text}Z`);

describe('GET /v1/wallet/statements/{month}', () => {
  const folder = mkdtempSync(join(tmpdir(), 'hg-statements-'));
  const keyFile = join(folder, 'statements.pem');
  let gateway: TestGateway;
  let books: TestBooks;
  let nowMs = 0;
  let organization: { id: string; managementKey: string; keyId: string; projectId: string };

  beforeAll(async () => {
    writePrivateKey(keyFile, generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }));
    gateway = await startGateway({ env: { HEADGATE_STATEMENT_KEY_FILE: keyFile } });
    const clock = { now: () => nowMs, monotonicMs: () => performance.now() };
    books = await openTestBooks({ db: gateway.db, databaseUrl: gateway.databaseUrl, clock, isStarted: false });
    organization = await openOrganization();
    await makeHistory();
  });
  afterAll(async () => {
    await books.close();
    await gateway.stop();
    rmSync(folder, { recursive: true });
  });

  const writePrivateKey = (path: string, pem: string | Buffer): void => writeFileSync(path, pem, { mode: 0o600 });

  async function openOrganization() {
    const body = { name: 'Mill' };
    const made: Body = await (await gateway.request('/v1/organizations', { body })).json();
    const keys: Body = await (await gateway.request('/v1/keys', { key: made.management_key })).json();
    return {
      id: uuidOf('org', made.id),
      managementKey: made.management_key,
      keyId: uuidOf('key', keys.data[0].id),
      projectId: uuidOf('proj', keys.data[0].project_id),
    };
  }

  async function settle(time: string, model: string, costPicoUsd: bigint): Promise<void> {
    nowMs = at(time) + 2000;
    const record = recordOf(organization, at(time), { model, costPicoUsd, writtenOffPicoUsd: costPicoUsd / 10n });
    await books.metering.settle(record);
  }

  async function book(time: string, kind: 'credit' | 'adjust', amountPicoUsd: bigint, reference: string) {
    nowMs = at(time);
    const booking = { organizationId: organization.id, amountPicoUsd, reference, note: null, author: systemAuthor };
    await books.wallet[kind](booking, nothingHeld);
  }

  const usd = 10n ** 12n;

  async function makeHistory(): Promise<void> {
    await book('2025-02-10T00:00:00', 'credit', 100n * usd, 'first');
    // Numbers of entries have one digit, and then two.
    for (let hour = 10; hour < 20; hour += 1) await settle(`2025-02-20T${hour}:00:00`, 'small', usd / 2n);
    await settle('2025-03-01T00:00:00', 'small', 10n * usd);
    await settle('2025-03-01T23:00:00', 'small', 10n * usd);
    await settle('2025-03-02T10:00:00', 'large', 20n * usd);
    await book('2025-03-05T00:00:00', 'credit', 7n * usd, 'second, with a comma');
    // Booked by a gateway whose clock is some minutes behind.
    await book('2025-03-04T23:55:00', 'adjust', -2n * usd, 'correction');
    // Admitted in March, over in April.
    await settle('2025-03-31T23:59:59', 'small', 30n * usd);
    await book('2025-04-02T00:00:00', 'credit', 1n * usd, 'third');
  }

  const ask = (month: string, accept = 'application/json', key: string = organization.managementKey) =>
    gateway.request(`/v1/wallet/statements/${month}`, { key, headers: { accept } });

  it.each(['2025-13', '2025-3', 'March', '1969-12'])('returns 400 for the invalid month %s', async (month) => {
    const answer = await ask(month);
    expect(answer.status).toBe(400);
    expect(((await answer.json()) as Body).error).toMatchObject({ param: 'month' });
  });

  it('returns 400 for a future month, and 403 to an inference key', async () => {
    expect((await ask('9999-12')).status).toBe(400);
    const body = { name: 'app', scope: 'inference' };
    const made: Body = await (await gateway.request('/v1/keys', { key: organization.managementKey, body })).json();
    expect((await ask('2025-03', 'application/json', made.secret)).status).toBe(403);
  });

  it('shows one point in time while requests are charged', async () => {
    const { db } = gateway;
    const own = await openOrganization();
    const total = async (): Promise<number[]> => {
      const body: Body = await (await ask('2025-06', 'application/json', own.managementKey)).json();
      return [Number(body.charges), body.usage.reduce((sum: number, { cost }: Body) => sum + Number(cost), 0)];
    };
    nowMs = at('2025-06-01T12:00:00');
    const credit = { organizationId: own.id, amountPicoUsd: 9n * usd, reference: 'own', note: null };
    await books.wallet.credit({ ...credit, author: systemAuthor });
    await books.metering.settle(recordOf(own, nowMs, { model: 'small', costPicoUsd: usd }));
    expect(await total()).toEqual([1, 1]);
    const session = db.session();
    const { asked } = await session.begin(async (tx) => {
      await tx`lock table ledger_entries in access exclusive mode`;
      const running = total();
      await expect
        .poll(() => db.sql`select 1 from pg_locks where not granted and relation = 'ledger_entries'::regclass`)
        .toHaveLength(1);
      // A charge of one dollar, in both books at once.
      await tx`update usage_daily set cost = cost * 2 where organization = (select code from usage_ids where id = ${own.id})`;
      await tx`insert into ledger_entries (number, created_at, requests, type, debit_account, credit_account,
          organization_id, id, amount, currency, balance_after)
        select number + 1, created_at, requests, type, debit_account, credit_account, organization_id,
          gen_random_uuid(), amount, currency, balance_after - amount
        from ledger_entries where organization_id = ${own.id} and type = 'usage'`;
      return { asked: running };
    });
    await session.end();
    expect(await asked).toEqual([1, 1]);
    expect(await total()).toEqual([2, 2]);
  });

  it('returns the final sums of a past month', async () => {
    const body: Body = await (await ask('2025-03')).json();
    expect(body).toMatchObject({
      object: 'wallet.statement',
      month: '2025-03',
      status: 'final',
      currency: 'USD',
      opening_balance: '95',
      credits: '7',
      adjustments: '-2',
      charges: '40',
      closing_balance: '60',
      written_off: '7',
      requests: 4,
      ledger: { entries: 16, head: expect.stringMatching(/^[0-9a-f]{64}$/) },
    });
    expect(body.bookings.map(({ type, amount, reference }: Body) => [type, amount, reference])).toEqual([
      ['credit', '7', 'second, with a comma'],
      ['adjustment', '-2', 'correction'],
    ]);
    expect(body.usage.map(({ day, model, requests, cost }: Body) => [day, model, requests, cost])).toEqual([
      ['2025-03-01', 'small', 2, '20'],
      ['2025-03-02', 'large', 1, '20'],
      ['2025-03-31', 'small', 1, '30'],
    ]);
  });

  it('carries the balance from month to month, through months without entries', async () => {
    const [february, march, april, may] = await Promise.all(
      ['2025-02', '2025-03', '2025-04', '2025-05'].map(async (month): Promise<Body> => (await ask(month)).json()),
    );
    expect([february.opening_balance, february.closing_balance]).toEqual(['0', march.opening_balance]);
    expect(april).toMatchObject({ opening_balance: march.closing_balance, charges: '30', closing_balance: '31' });
    expect(may).toMatchObject({ opening_balance: '31', closing_balance: '31', usage: [], ledger: april.ledger });
  });

  it('returns days that add up, and end with the balances of the ledger', async () => {
    const [first, last] = [at('2025-02-09T00:00:00'), at('2025-04-03T15:00:00')];
    nowMs = last;
    const days = await books.wallet.ledgerDays(organization.id, Math.ceil((last - first) / 86_400_000));
    const rows = await gateway.db.sql<{ day: string; balance: string; credits: string; charges: string }[]>`
      select to_char(created_at at time zone 'UTC', 'YYYY-MM-DD') as day,
        (array_agg(balance_after order by number desc))[1]::text as balance,
        coalesce(sum(amount) filter (where type = 'credit'), 0)::text as credits,
        coalesce(sum(amount) filter (where type = 'usage'), 0)::text as charges
      from ledger_entries where organization_id = ${organization.id} and created_at < '2025-04-03' group by 1`;
    const dayOf = ({ dayMs }: { dayMs: number }): string => new Date(dayMs).toISOString().slice(0, 10);
    const read = new Map(days.map((day) => [dayOf(day), day]));
    // Around the entry of the late clock, the order of booking decides.
    for (const { day, ...sums } of rows.filter((row) => !['2025-03-04', '2025-03-05'].includes(row.day))) {
      const found = read.get(day);
      const shown = { balance: found?.balancePicoUsd, credits: found?.creditedPicoUsd, charges: found?.chargedPicoUsd };
      expect(Object.values(shown).map(String), day).toEqual([sums.balance, sums.credits, sums.charges]);
    }
    let balance = 0n;
    for (const day of days) {
      balance += day.creditedPicoUsd + day.adjustedPicoUsd - day.chargedPicoUsd;
      expect(balance, dayOf(day)).toBe(day.balancePicoUsd);
    }
    expect(days.at(0)).toMatchObject({ dayMs: first, balancePicoUsd: 0n });
    expect(days.at(-1)).toMatchObject({ dayMs: at('2025-04-03T00:00:00'), balancePicoUsd: 31n * usd });
    const { data } = (await (
      await gateway.request('/v1/wallet/days?days=3', { key: organization.managementKey })
    ).json()) as Body;
    expect(data.map((day: Body) => day.charges)).toEqual(['0', '0', '0']);
    expect(data[2]).toMatchObject({ object: 'wallet.day', day: new Date().toISOString().slice(0, 10), balance: '31' });
    for (const wrong of ['0', '401', 'all']) {
      expect((await gateway.request(`/v1/wallet/days?days=${wrong}`)).status).toBe(400);
    }
  });

  it('returns an open statement for the current month', async () => {
    const month = new Date().toISOString().slice(0, 7);
    expect(await (await ask(month)).json()).toMatchObject({ status: 'open', closing_balance: '31' });
  });

  it('returns the same statement as CSV', async () => {
    const answer = await ask('2025-03', 'text/csv');
    expect(answer.headers.get('content-type')).toContain('text/csv');
    const lines = (await answer.text()).split('\r\n');
    expect(lines[0]).toBe('line,date,id,model,requests,input_tokens,output_tokens,amount,reference');
    const org = `org_${organization.id.replaceAll('-', '')}`;
    expect(lines).toContain(`closing_balance,2025-03,${org},,,,,60,`);
    expect(lines.find((line) => line.startsWith('credit,'))).toMatch(/,7,"second, with a comma"$/);
    expect(lines.filter((line) => line.startsWith('usage,'))).toHaveLength(3);
  });

  it('signs the bytes of the statement, so that a changed one is detected', async () => {
    const jwk = join(folder, 'key.json');
    const key: Body = await (await gateway.request('/v1/statement-key', { key: null })).json();
    writeFileSync(jwk, JSON.stringify(key));
    for (const accept of ['application/json', 'text/csv']) {
      const answer = await ask('2025-03', accept);
      const signature = answer.headers.get('x-headgate-signature') ?? '';
      const path = join(folder, 'statement');
      const text = await answer.text();
      writeFileSync(path, text);
      const verify = (keyOf: string) => runCli(['verify-statement', path, '--signature', signature, '--key', keyOf]);
      expect(await verify(jwk)).toMatchObject({ code: 0, stdout: expect.stringContaining('the signature is valid') });
      const other = join(folder, 'other.pem');
      writeFileSync(other, generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' }));
      expect(await verify(other)).toMatchObject({ code: 1 });
      expect(await verify(path)).toMatchObject({ code: 2, stderr: expect.stringContaining('no Ed25519 public key') });
      writeFileSync(path, text.replace('60', '61'));
      expect(await verify(jwk)).toMatchObject({
        code: 1,
        stdout: expect.stringContaining('the signature is NOT valid for this key'),
      });
      expect(text).toContain(key.kid);
    }
  });

  it('returns the same end of a month after later entries', async () => {
    const before = await (await ask('2025-03')).text();
    nowMs = Date.now();
    await books.metering.settle(recordOf(organization, nowMs, { id: uuidLowerBound(nowMs), costPicoUsd: usd }));
    expect(await (await ask('2025-03')).text()).toBe(before);
  });

  it('accepts an Ed25519 private key, and names the problem of any other file', () => {
    const cases: [string | Buffer | null, string][] = [
      [null, 'cannot be read'],
      ['nothing', 'must contain a PEM private key'],
      [
        generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' }),
        'must contain a PEM private key',
      ],
      [
        generateKeyPairSync('x25519').privateKey.export({ type: 'pkcs8', format: 'pem' }),
        'has type x25519, not ed25519',
      ],
    ];
    for (const [content, message] of cases) {
      const path = join(folder, content === null ? 'none.pem' : 'wrong.pem');
      if (content !== null) writePrivateKey(path, content);
      expect(() => readSigner(path, 'HEADGATE_STATEMENT_KEY_FILE')).toThrow(message);
    }
  });
});

describe('a gateway without a statement key', () => {
  it('marks statements as unsigned', async () => {
    const gateway = await startGateway();
    const answer = await gateway.request('/v1/wallet/statements/2025-03');
    expect(answer.headers.get('x-headgate-signature')).toBe('unsigned');
    expect(await answer.json()).toMatchObject({ signing_key: null, opening_balance: '0', ledger: { entries: 0 } });
    expect((await gateway.request('/v1/statement-key')).status).toBe(404);
    await gateway.stop();
  });
});
