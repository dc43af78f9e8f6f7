import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { runCli } from '#test/cli/run-cli.ts';
import { type Body, standinFile, useInference } from '#test/inference/inference-gateway.ts';
import { makePerson, signInPerson, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

const folder = mkdtempSync(join(tmpdir(), 'hg-statements-'));
const keyFile = join(folder, 'statements.pem');
writeFileSync(keyFile, generateKeyPairSync('ed25519').privateKey.export({ type: 'pkcs8', format: 'pem' }), {
  mode: 0o600,
});
afterAll(() => rmSync(folder, { recursive: true }));

const bench = useInference(() => ({
  engines: { chat: standinFile('chat') },
  env: { HEADGATE_STATEMENT_KEY_FILE: keyFile },
}));
const month = new Date().toISOString().slice(0, 7);
const path = `/portal/wallet/statements/${month}`;
let admin: Visitor;

beforeAll(async () => {
  admin = await signInVisitor(bench.gateway);
  const answer = await bench.chat({ model: 'chat', max_tokens: 20 });
  await answer.text();
  await bench.recordOf(answer);
});

it('shows the sums of a month, who posted its entries, and leads to the months beside it', async () => {
  await admin.post('/portal/wallet/credits', { amount: '25', reference: 'invoice-7', note: 'paid <twice>' });
  const { text, status } = await admin.get(path);
  expect(status).toBe(200);
  expect(text).toMatch(/invoice-7[^]*paid &lt;twice&gt;[^]*<strong>[^<@]+@[^<]+<\/strong>[^]*\$25\.00/);
  const statement: Body = await (await bench.gateway.request(`/v1/wallet/statements/${month}`)).json();
  for (const amount of [statement.closing_balance, statement.charges]) expect(text).toContain(`$${amount}`);
  expect(text).toContain('It is final one day after the month.');
  expect((await admin.get('/portal/wallet')).text).toContain(`href="${path}"`);
  // Nothing was there before the month.
  expect(text).not.toMatch(/class="pager">[^]*\/portal\/wallet\/statements\//);
  const before = '/portal/wallet/statements/2025-03';
  expect((await admin.get(before)).text).toMatch(/>final<[^]*No requests/);
});

it('sends the files with a signature that the command accepts', async () => {
  const key = join(folder, 'key.json');
  writeFileSync(key, await (await bench.gateway.request('/v1/statement-key', { key: null })).text());
  for (const type of ['json', 'csv']) {
    const { text, headers } = await admin.get(`${path}/${type}`);
    expect(headers['content-disposition']).toBe(`attachment; filename="statement-${month}.${type}"`);
    const file = join(folder, `statement.${type}`);
    writeFileSync(file, text);
    const signature = String(headers['x-headgate-signature']);
    expect(await runCli(['verify-statement', file, '--signature', signature, '--key', key])).toMatchObject({ code: 0 });
  }
});

it('says for a wrong month what is wrong, and is not for members', async () => {
  const wrong = await admin.get('/portal/wallet/statements/2026-13');
  expect(wrong.status).toBe(400);
  expect(wrong.text).toContain('must be a month such as 2026-10');
  const member = await signInPerson(bench.gateway, (await makePerson(bench.gateway, { role: 'member' })).email);
  expect((await member.get(path)).status).toBe(403);
  expect((await member.get('/portal/wallet')).text).not.toContain('/portal/wallet/statements/');
});
