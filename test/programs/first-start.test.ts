import { execFile } from 'node:child_process';
import { cpSync, mkdirSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import postgres from 'postgres';
import { describe, expect, it } from 'vitest';
import { clientOf, engineFile, type GatewayProcess, repository, useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const run = promisify(execFile);

/** Does what a printed curl line does: by bash and curl where the machine has both, else by reading the line. */
async function runPrinted(command: string): Promise<unknown> {
  try {
    const { stdout } = await run('bash', ['-c', `command -v curl >&2 && ${command} --silent --show-error`]);
    return JSON.parse(stdout);
  } catch (error) {
    const isMissing = error instanceof Error && 'code' in error && ['1', 'ENOENT'].includes(String(error.code));
    if (!isMissing) throw error;
  }
  const [url = ''] = /http:\S+/.exec(command) ?? [];
  const headers = [...command.matchAll(/-H '([^:]+): ([^']+)'/g)].map(([, name = '', value = '']) => [name, value]);
  const [, body = ''] = /-d '([^']+)'/.exec(command) ?? [];
  return (await fetch(url, { method: 'POST', headers: Object.fromEntries(headers), body })).json();
}

const secretPattern = /^ {2}(sk-hg-\S+)$/m;

async function stop(gateway: GatewayProcess): Promise<void> {
  gateway.signal('SIGTERM');
  expect(await gateway.exited).toEqual({ code: 0, signal: null });
}

/** How much of everything that a first start makes is in the books. */
async function countAll(url: string): Promise<unknown> {
  const sql = postgres(url, { max: 1, onnotice: () => undefined });
  try {
    const [row] = await sql`select (select count(*) from organizations)::int as organizations,
      (select count(*) from users)::int as users, (select count(*) from projects)::int as projects,
      (select count(*) from api_keys)::int as keys, (select count(*) from ledger_entries)::int as entries,
      (select count(*) from audit_log)::int as audit, (select sum(balance) from wallets)::text as balance`;
    return row;
  } finally {
    await sql.end({ timeout: 5 });
  }
}

describe('the first start', () => {
  it('prints a key once, with a curl line that works; later starts change nothing', async () => {
    const home = processes.home();
    const first = processes.run({ home, databaseUrl: null, env: { LOG_LEVEL: 'trace' } });
    const url = await first.url();
    const [, secret = ''] = await first.printed(secretPattern);
    const [command = ''] = await first.printed(/^ {2}curl [^]*?\}'$/m);

    expect(await runPrinted(command)).toMatchObject({ object: 'chat.completion', model: 'chat' });
    const client = clientOf(url, secret);
    const before = [await client.get('/v1/wallet'), await client.get('/v1/wallet/ledger')];
    const keys = await client.get('/v1/keys');
    expect(keys.data).toMatchObject([{ scope: 'management', status: 'active' }]);
    await stop(first);
    // Once as such and once in the curl line; nowhere in the log.
    expect(first.output.stdout.split(secret)).toHaveLength(3);
    expect(first.output.stderr).toBe('');

    const second = processes.run({ home, databaseUrl: null });
    const again = clientOf(await second.url(), secret);
    expect([await again.get('/v1/wallet'), await again.get('/v1/wallet/ledger')]).toEqual(before);
    expect((await again.get('/v1/keys')).data).toMatchObject([{ id: keys.data[0].id }]);
    await stop(second);
    expect(`${second.output.stdout}${second.output.stderr}`).not.toMatch(/sk-hg-|curl|Try it/);
  });

  it('uses the configured email, password and key without printing them; later values change nothing', async () => {
    const databaseUrl = await processes.database();
    // It looks like a key of ours but has no checksum.
    const key = 'sk-hg-chosen-by-hand-without-any-checksum';
    const settings = { email: 'ops@example.com', password: 'correct horse battery' };
    const env = {
      HEADGATE_BOOTSTRAP_EMAIL: settings.email,
      HEADGATE_BOOTSTRAP_PASSWORD: settings.password,
      HEADGATE_BOOTSTRAP_KEY: key,
      LOG_LEVEL: 'trace',
    };
    const first = processes.run({ home: processes.home(), databaseUrl, env });
    const client = clientOf(await first.url(), key);
    expect(await client.get('/v1/wallet')).toMatchObject({ balance: '10' });
    expect((await client.chat({})).status).toBe(200);
    await stop(first);
    const counts = await countAll(databaseUrl);
    expect(counts).toMatchObject({ organizations: 1, users: 1, projects: 1, keys: 1, entries: 2 });

    const other = { ...env, HEADGATE_BOOTSTRAP_KEY: 'another-key-of-thirty-two-characters-1' };
    const second = processes.run({ home: processes.home(), databaseUrl, env: other });
    const url = await second.url();
    expect(await clientOf(url, key).get('/v1/keys')).toMatchObject({ data: [{ scope: 'management' }] });
    expect(await clientOf(url, other.HEADGATE_BOOTSTRAP_KEY).get('/v1/keys')).toHaveProperty(
      'error.code',
      'unauthorized',
    );
    await stop(second);
    expect(await countAll(databaseUrl)).toEqual(counts);
    for (const { stdout, stderr } of [first.output, second.output]) {
      for (const secret of [key, other.HEADGATE_BOOTSTRAP_KEY, settings.password, new URL(databaseUrl).password])
        expect(`${stdout}${stderr}`).not.toContain(secret);
    }
  });

  it('works from a folder with blanks and percent signs in its name', async () => {
    const home = processes.home();
    const copy = join(home.dir, 'a house %20 of one’s own');
    mkdirSync(copy);
    for (const name of ['src', 'drizzle', 'package.json'])
      cpSync(join(repository, name), join(copy, name), { recursive: true });
    symlinkSync(join(repository, 'node_modules'), join(copy, 'node_modules'));
    mkdirSync(join(copy, 'engines'));
    cpSync(home.enginesDir, join(copy, 'engines'), { recursive: true });
    const env = { HEADGATE_ENGINES_DIR: '' };
    const gateway = processes.run({ home, databaseUrl: await processes.database(), env, cwd: copy });
    const url = await gateway.url();
    const [, secret = ''] = await gateway.printed(secretPattern);
    expect((await clientOf(url, secret).get('/v1/models')).data).toMatchObject([{ id: 'chat' }]);
    await stop(gateway);
  });

  it('prints a request for another model type without a chat model, and none without models', async () => {
    const embedding = engineFile('chat')
      .replace('task_type: chat', 'task_type: embedding')
      .replaceAll('chat', 'vectors');
    const vectors = processes.run({
      home: processes.home({ vectors: embedding.replace('8192"]', '8192","--runner","pooling","--convert","embed"]') }),
      databaseUrl: await processes.database(),
    });
    const [command = ''] = await vectors.printed(/^ {2}curl [^]*?\}'$/m);
    expect(await runPrinted(command)).toMatchObject({ object: 'list', data: [{ object: 'embedding' }] });
    await stop(vectors);

    const none = processes.run({ home: processes.home({}), databaseUrl: await processes.database() });
    await none.printed(secretPattern);
    await stop(none);
    expect(none.output.stdout).not.toContain('curl');
  });
});
