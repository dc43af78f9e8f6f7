import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { type CliOptions, repository, runCli, useFolders } from '#test/cli/run-cli.ts';
import { useTerminals } from './terminal.ts';

const folders = useFolders();
const terminals = useTerminals();

let gateway: TestGateway;
const enginesDir = mkdtempSync(join(tmpdir(), 'hg-engines-'));
beforeAll(async () => {
  cpSync(join(repository, 'engines'), enginesDir, {
    recursive: true,
    filter: (path) => !/examples|\.json$/.test(path),
  });
  const chat = readFileSync(join(enginesDir, 'standin-chat.yaml'), 'utf8');
  const slow = chat
    .replaceAll('standin-chat', 'slow')
    .replace('Stand-in Chat', 'Slow')
    .replace('  - hermes', '  - hermes\n  - --tpot-ms\n  - "400"');
  writeFileSync(join(enginesDir, 'slow.yaml'), slow);
  gateway = await startGateway({ enginesDir });
});
afterAll(async () => {
  await gateway.stop();
  rmSync(enginesDir, { recursive: true, force: true });
});

const run = (args: readonly string[], { env, ...options }: CliOptions = {}) =>
  runCli(args, { ...options, env: { HEADGATE_URL: gateway.url, HEADGATE_API_KEY: gateway.key, ...env } });

/** JSON of any shape; tests compare it. */
type Json = ReturnType<JSON['parse']>;
const read = async (path: string): Promise<Json> => (await gateway.request(path)).json();
const newest = async (): Promise<Json> => (await read('/v1/usage/requests?limit=1')).data[0];

describe('headgate models', () => {
  it('rejects an unknown task, and lists models with their prices', async () => {
    expect(await run(['models', '--task', 'embeding'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('did you mean "embedding"?'),
    });
    const { stdout } = await run(['models']);
    expect(stdout).toMatch(/^MODEL +TASK +STATUS +CONTEXT +\$\/M INPUT/);
    // 0.0000001 USD per token.
    expect(stdout).toMatch(/^standin-chat +chat +\w+ +8192 +0\.1 +0\.05 +0\.4 +Stand-in Chat$/m);
    const json = JSON.parse((await run(['models', '--task', 'embedding', '--json'])).stdout);
    expect(json).toMatchObject({ object: 'list', data: [{ id: 'standin-embed', task_type: 'embedding' }] });
  });
});

describe('headgate chat', () => {
  it("rejects an empty question and unreadable files, and shows the gateway's error with the request id", async () => {
    expect(await run(['chat'])).toMatchObject({ code: 2, stderr: expect.stringContaining('no question') });
    expect(await run(['chat', 'x', '-f', '/nowhere'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('there is no /nowhere'),
    });
    expect(await run(['chat', 'x', '--temperature', 'hot'])).toMatchObject({ code: 2 });
    const binary = join(folders(), 'x.bin');
    writeFileSync(binary, Buffer.from([0xff, 0xfe, 0x00, 0x80]));
    expect(await run(['chat', 'x', '-f', binary])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('neither UTF-8 text nor'),
    });
    const unknown = await run(['chat', '-m', 'nope', 'x']);
    expect(unknown).toMatchObject({ code: 1, stdout: '' });
    expect(unknown.stderr).toMatch(/"nope" does not exist[^]*\n {2}request [0-9a-f-]{36}\n/);
    const nobody = await run(['chat', '-m', 'x', 'x'], { env: { HEADGATE_URL: 'http://127.0.0.1:20001' } });
    expect(nobody).toMatchObject({ code: 1, stderr: expect.stringContaining('is unreachable (ECONNREFUSED)') });
    const poor = await run(['chat', '-m', 'standin-chat', 'x', '--max-cost', '0.0000000001']);
    expect(poor).toMatchObject({ code: 1, stderr: expect.stringContaining('x-headgate-max-cost') });
  });

  it('sends words, standard input and files together, and prints the cost from the ledger', async () => {
    const file = join(folders(), 'notes.txt');
    writeFileSync(file, 'fish');
    const answer = await run(['chat', '-m', 'standin-chat', '-s', 'Be brief.', 'Count', 'them.', '-f', file], {
      input: 'one two',
    });
    expect(answer).toMatchObject({ code: 0, stdout: expect.stringMatching(/^This text comes from a stand-in[^]+\n$/) });
    const booked = await newest();
    const { input_tokens: input, output_tokens: output, cost } = booked;
    expect(answer.stderr).toBe(`standin-chat: ${input} tokens in, ${output} out, $${cost}\n`);
    const small = JSON.parse((await run(['chat', '-m', 'standin-chat', 'x', '--json'])).stdout);
    expect(input).toBeGreaterThan(small.input_tokens);
    expect(small).toMatchObject({
      model: 'standin-chat',
      stopped: false,
      request_id: (await newest()).id,
      cost: (await newest()).cost,
    });
  });

  it('keeps the order of the typed words, including negative numbers', async () => {
    const key = (await (
      await gateway.request('/v1/keys', { body: { name: 'kept', store_requests: true } })
    ).json()) as Json;
    const asked = await run(['chat', '-m', 'standin-chat', 'what', 'is', '-3', '+', '5', '--json'], {
      env: { HEADGATE_API_KEY: key.secret },
    });
    const { request_id: id } = JSON.parse(asked.stdout);
    const { request } = await read(`/v1/usage/requests/${id}/content`);
    expect(request.messages).toEqual([{ role: 'user', content: 'what is -3 + 5' }]);
    const cold = await run(['chat', '-m', 'standin-chat', 'x', '--temperature', '-1']);
    expect(cold).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('--temperature must be a number such as 0.7'),
    });
  });

  it('uses its gateway and key, and ignores OPENAI_* variables', async () => {
    const env = {
      OPENAI_CUSTOM_HEADERS: 'Authorization: Bearer sk-other\nX-Headgate-Max-Cost: 0.0000000001',
      OPENAI_API_KEY: 'sk-other',
      OPENAI_ADMIN_KEY: 'sk-other',
      OPENAI_BASE_URL: 'http://127.0.0.1:20001/v1',
      OPENAI_ORG_ID: 'org_other',
      OPENAI_PROJECT_ID: 'proj_other',
      OPENAI_WEBHOOK_SECRET: 'whsec_other',
    };
    const answer = await run(['chat', '-m', 'standin-chat', 'x', '--json'], { env });
    expect(answer).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(answer.stdout).request_id).toBe((await newest()).id);
  });

  it('prints reasoning to stderr, not in the answer', async () => {
    const { stdout, stderr } = await run(['chat', '-m', 'standin-reasoning', 'x']);
    expect(stderr).toMatch(/^thinking:\nThe question [^]+\n\nstandin-reasoning: /);
    expect(stdout).not.toContain('The question');
    expect((await run(['chat', '-m', 'standin-reasoning', 'x', '--no-reasoning'])).stderr).not.toContain('thinking');
    const json = JSON.parse((await run(['chat', '-m', 'standin-reasoning', 'x', '--json'])).stdout);
    expect(json).toMatchObject({
      reasoning: expect.stringContaining('The question'),
      content: expect.stringContaining('This text'),
    });
  });

  it('starts a conversation on a terminal', async () => {
    const env = { HEADGATE_URL: gateway.url, HEADGATE_API_KEY: gateway.key };
    const terminal = await terminals().open(env);
    await terminal.type('headgate chat -m standin-chat\n');
    await terminal.shows('Ctrl-D ends\n> ');
    await terminal.type('Hello!\n');
    await terminal.shows(/This text comes[^]*tokens in[^]*\n> $/m);
    const first = await newest();
    await terminal.type('/modle\n');
    await terminal.shows('unknown or incomplete command /modle');
    await terminal.type('And then?\n');
    await terminal.shows(/And then\?\n[^]*tokens in[^]*\n> $/m);
    const second = await newest();
    // Earlier messages are part of the question.
    expect(second.input_tokens).toBeGreaterThan(first.input_tokens + first.output_tokens);
    await terminal.key('C-d');
    const screen = await terminal.shows('in total');
    const sum = (
      BigInt(Math.round(Number(first.cost) * 1e12)) + BigInt(Math.round(Number(second.cost) * 1e12))
    ).toString();
    expect(screen).toContain('in total');
    expect(screen.match(/\$([0-9.]+) in total/)?.[1]?.replace(/^0\.0*/, '')).toBe(sum.replace(/0+$/, ''));
  });
});

describe('Ctrl-C in headgate chat', () => {
  it('stops the answer, prints what was billed, and exits with 130', async () => {
    const stopped = await run(['chat', '-m', 'slow', 'Hello!'], { until: (text) => text.includes('stand-in') });
    expect(stopped).toMatchObject({ code: 130, stdout: expect.stringContaining('This text comes from a stand') });
    const booked = await newest();
    expect(booked).toMatchObject({ model: 'slow', outcome: 'aborted' });
    expect(booked.output_tokens).toBeGreaterThan(0);
    expect(stopped.stderr).toContain(
      `stopped; slow: ${booked.input_tokens} tokens in, ${booked.output_tokens} out, $${booked.cost}\n`,
    );
  });

  it('stops the answer and continues the conversation', async () => {
    const terminal = await terminals().open({ HEADGATE_URL: gateway.url, HEADGATE_API_KEY: gateway.key });
    await terminal.type('headgate chat -m slow\n');
    await terminal.shows('Ctrl-D ends\n> ');
    await terminal.type('Hello!\n');
    await terminal.shows('This text comes');
    await terminal.key('C-c');
    await terminal.shows(/stopped; slow: [^]*\n> \s*$/);
    // Typed text is thrown away, also of a line that goes on.
    await terminal.type('never \\\nsent');
    await terminal.shows('. sent');
    await terminal.key('C-c');
    await terminal.shows(/\. \^C\n> \s*$/);
    // There is nothing to stop: it ends.
    await terminal.key('C-c');
    expect(await terminal.shows(/\$0\.0\d+ in total/)).toContain('stopped; slow: ');
    await terminal.type('echo "code $?"\n');
    await terminal.shows('code 130');
  });
});

describe('headgate keys, usage and wallet', () => {
  it('reject invalid options before any request', async () => {
    const refused = async (...args: string[]) => (await run(args)).stderr;
    expect(await refused('keys', 'create', 'x', '--requests-per-minute', 'many')).toContain(
      'must be a number, or none',
    );
    expect(await refused('keys', 'create', 'x', '--expiry', '31d')).toContain('--expiry must be one of never, 7d');
    expect(await refused('keys', 'edit', 'x')).toContain('nothing to change');
    expect(await refused('keys', 'rotate', 'x', '--grace', 'soon')).toContain('--grace must be a duration such as');
    expect(await refused('keys', 'revoke', 'none-of-that-name')).toContain('"headgate keys ls" lists the keys');
    expect(await refused('wallet', 'credit', '5')).toContain('--reference is missing');
    expect(await refused('usage', '--by', 'modle')).toContain('--by must be one or more of model');
    expect(await refused('wallet', 'ledger', '--limit', '0')).toContain('--limit must be a number');
  });

  it('create, change and revoke a key', async () => {
    const made = await run([
      'keys',
      'create',
      'laptop',
      '--expiry',
      '7d',
      '--requests-per-minute',
      'none',
      '--models',
      'standin-chat',
    ]);
    expect(made).toMatchObject({ code: 0, stderr: '' });
    const secret = /sk-hg-\S+/.exec(made.stdout)?.[0] ?? '';
    // It is good for the model that it may use, and for nothing else; its own usage is what it sees.
    const env = { HEADGATE_API_KEY: secret };
    expect((await run(['models', '--json'], { env })).stdout).not.toContain('standin-embed');
    expect((await run(['chat', 'Hello!'], { env })).code).toBe(0);
    expect((await run(['usage', 'requests', '--limit', '5'], { env })).stdout.split('\n')).toHaveLength(3);
    expect((await run(['keys', 'ls'], { env })).stderr).toContain(
      'requires an API key with the scope "management"; the key in HEADGATE_API_KEY has scope "inference"; have a manager of the ' +
        'organization run "headgate keys create NAME --scope management"',
    );
    const changed = await run([
      'keys',
      'edit',
      'laptop',
      '--tokens-per-minute',
      '5000',
      '--name',
      'desk',
      '--store-requests',
      'on',
      '--confined',
      'on',
      '--json',
    ]);
    expect(JSON.parse(changed.stdout)).toMatchObject({
      name: 'desk',
      tokens_per_minute: 5000,
      requests_per_minute: null,
      store_requests: true,
      confined: true,
    });
    expect((await run(['keys', 'ls', '--status', 'active'])).stdout).toMatch(/; confined; store-requests +desk$/m);
    const free = await run(['keys', 'edit', 'desk', '--confined', 'auto', '--json']);
    expect(JSON.parse(free.stdout)).toMatchObject({ confined: null });
    // By the name that the key has; of what it was used for an ended one is asked, too.
    const requests = async () => (await run(['usage', 'requests', '--key', 'desk'])).stdout.split('\n');
    expect(await requests()).toHaveLength(3);
    expect(await run(['keys', 'revoke', 'desk'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(
        'Its requests fail immediately and permanently. There is no terminal to confirm on',
      ),
    });
    expect((await run(['models'], { env })).code).toBe(0);
    const rotated = await run(['keys', 'rotate', 'desk', '--grace', '2h']);
    expect(rotated).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/"desk" has a new secret; .* works until /),
    });
    const [rotatedSecret = ''] = /sk-hg-[0-9a-f]{12}-\w+/.exec(rotated.stdout) ?? [];
    for (const secret of [env.HEADGATE_API_KEY, rotatedSecret]) {
      expect((await run(['models'], { env: { ...env, HEADGATE_API_KEY: secret } })).code).toBe(0);
    }
    expect(await run(['keys', 'revoke', 'desk', '--yes'])).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('"desk": revoked'),
    });
    expect((await run(['models'], { env })).code).toBe(1);
    expect(await requests()).toHaveLength(3);
    expect((await run(['usage', 'requests', '--key', 'nope'])).stderr).toContain('no key is named "nope"');
  });

  it('ask on a terminal before they revoke a key', async () => {
    await run(['keys', 'create', 'cautious']);
    const terminal = await terminals().open({ HEADGATE_URL: gateway.url, HEADGATE_API_KEY: gateway.key });
    await terminal.type('headgate keys revoke cautious\n');
    await terminal.shows('Revoke the key "cautious"');
    await terminal.type('\n');
    await terminal.shows('nothing was revoked');
    await terminal.type('clear; headgate keys revoke cautious\n');
    await terminal.shows('Revoke the key "cautious"');
    await terminal.type('y\n');
    await terminal.shows('"cautious": revoked');
    // Colours are for terminals, and for none that asks for none.
    await terminal.type('clear; headgate keys ls --status revoked; echo end\n');
    await terminal.shows(/^end$/m);
    expect(await terminal.colours()).toContain('\u001b[31mrevoked');
    await terminal.type('clear; NO_COLOR=1 headgate keys ls --status revoked; echo done\n');
    await terminal.shows(/^done$/m);
    expect(await terminal.colours()).not.toContain('\u001b[31m');
  });

  it('show balance, ledger and sums as the API does, and post a credit once', async () => {
    const credit = ['wallet', 'credit', '2.5', '--reference', 'invoice-7', '--note', 'a gift'];
    expect((await run(credit)).stdout).toMatch(/^2\.5 USD applied; the balance is [0-9.]+ USD\n$/);
    expect((await run(['wallet', 'adjust', '-0.5', '--reference', 'oops'])).stderr).toContain('--reason is missing');
    const adjusted = await run(['wallet', 'adjust', '-0.5', '--reason', 'a slip', '--reference', 'oops']);
    expect(adjusted.stdout).toMatch(/^-0\.5 USD applied; /);
    const wallet = await read('/v1/wallet');
    // The balance right after the credit is not the current one.
    const again = await run(credit);
    expect(again.stdout).toMatch(
      /^already applied: 2\.5 USD under the reference "invoice-7", at [0-9: -]+ UTC; nothing was/,
    );
    expect(again.stdout).toContain(`; the balance is ${wallet.balance} USD\n`);
    const json = JSON.parse((await run([...credit, '--json'])).stdout);
    expect(json).toMatchObject({ amount: '2.5', already_booked: true, balance: wallet.balance });
    expect((await run(['wallet'])).stdout).toContain(`balance    ${wallet.balance} USD\n`);
    const ledger = (await run(['wallet', 'ledger', '--type', 'credit'])).stdout;
    expect(ledger.match(/invoice-7, a gift/g)).toHaveLength(1);
    const { totals } = await read('/v1/usage/summary?from=2026-01-01');
    const usage = (await run(['usage', '--from', '2026-01-01', '--by', 'model,day'])).stdout;
    expect(usage).toMatch(/^MODEL +DAY +REQUESTS +REJECTED +INPUT /m);
    // A rejected request is counted a moment later.
    const counts = `${totals.num_model_requests} +\\d+ +${totals.input_tokens}`;
    expect(usage).toMatch(new RegExp(`^total +${counts} +.* ${totals.cost}$`, 'm'));
    const summary = await run(['usage', '--from', '2026-01-01', '--json']);
    expect(JSON.parse(summary.stdout)).toMatchObject({ object: 'usage.summary', totals });
  });
});
