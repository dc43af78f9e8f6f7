import { describe, expect, it } from 'vitest';
import { connectDb } from '#base/database/connect-database.ts';
import { type CliResult, runCli, useFolders } from '#test/cli/run-cli.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { addPostgres } from '#test/programs/built-in-postgres.ts';
import { clientOf, type GatewayProcess, givenKey, readFrames, useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const folder = useFolders();

const secretOf = ({ stdout }: CliResult): string => /^ {2}(sk-hg-\S+)$/m.exec(stdout)?.[1] ?? '';

async function statusOf(url: string, key: string): Promise<number> {
  return (await fetch(new URL('/v1/keys', url), { headers: { authorization: `Bearer ${key}` } })).status;
}

async function stop(gateway: GatewayProcess): Promise<void> {
  gateway.signal('SIGTERM');
  expect(await gateway.exited).toEqual({ code: 0, signal: null });
}

describe('headgate keys recover', () => {
  it('exits with 2 when there is nothing to recover, and creates nothing', async () => {
    const none = await runCli(['keys', 'recover'], { env: { HEADGATE_DATA_DIR: folder() } });
    expect(none).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('contains no database of a') });
    const databaseUrl = await processes.database();
    const empty = await runCli(['keys', 'recover'], { env: { DATABASE_URL: databaseUrl } });
    expect(empty).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('has no platform administrator'),
    });
    const away = await runCli(['keys', 'recover'], { env: { DATABASE_URL: 'postgres://u:hidden@127.0.0.1:1/x' } });
    expect(away).toMatchObject({ code: 2, stderr: expect.stringMatching(/^headgate: DATABASE_URL: .*ECONNREFUSED/) });
    expect(away.stderr).not.toContain('hidden');
    expect(await runCli(['keys', 'recover', 'now'])).toMatchObject({ code: 2 });
  });

  it('creates a key with and without a running gateway; other keys are revoked only on request', async () => {
    const home = processes.home();
    await addPostgres(home);
    const env = { HEADGATE_DATA_DIR: home.dataDir };
    const first = processes.run({ home, databaseUrl: null });
    const url = await first.url();
    const [, lost = ''] = await first.printed(/^ {2}(sk-hg-\S+)$/m);

    const beside = await runCli(['keys', 'recover'], { env });
    expect(beside).toMatchObject({ code: 0, stderr: '', stdout: expect.stringContaining('Other active keys') });
    expect(beside.stdout.split(secretOf(beside))).toHaveLength(2);
    const client = clientOf(url, secretOf(beside));
    expect((await client.get('/v1/keys')).data).toMatchObject([
      { name: 'Recovered management key', scope: 'management', status: 'active' },
      { status: 'active' },
    ]);
    expect((await client.get('/v1/admin/engines')).data).toMatchObject([{ id: 'chat' }]);
    expect(await statusOf(url, lost)).toBe(200);

    const stream = await readFrames(
      await clientOf(url, lost).chat({ stream: true, max_tokens: 4000, messages: [{ role: 'user', content: 'x' }] }),
      1,
    );
    const again = await runCli(['keys', 'recover', '--revoke-others', '--json'], { env });
    const made: { secret: string; revoked: string[]; still_active: string[] } = JSON.parse(again.stdout);
    expect(made).toMatchObject({ revoked: [expect.any(String), expect.any(String)], still_active: [] });
    // At once: known keys are read again only after 30 seconds.
    expect(await eventually(async () => ((await statusOf(url, lost)) === 401 ? true : null))).toBe(true);
    expect(await statusOf(url, secretOf(beside))).toBe(401);
    expect(await statusOf(url, made.secret)).toBe(200);
    expect(await stream.rest()).toMatch(/unauthorized|\[DONE\]/);
    await stop(first);

    const offline = await runCli(['keys', 'recover'], { env: { ...env, HEADGATE_KEY_PREFIX: 'acme-' } });
    const [, secret = ''] = /^ {2}(acme-\S+)$/m.exec(offline.stdout) ?? [];
    const second = processes.run({ home, databaseUrl: null });
    expect(await statusOf(await second.url(), secret)).toBe(200);
    await stop(second);
  });

  it('writes an audit entry without an actor; a changed HEADGATE_BOOTSTRAP_KEY is reported as having no effect', async () => {
    const databaseUrl = await processes.database();
    const env = { HEADGATE_BOOTSTRAP_KEY: givenKey, HEADGATE_METRICS_HOST: '127.0.0.1' };
    const first = processes.run({ home: processes.home(), databaseUrl, env });
    await first.url();
    expect(first.output.stdout).not.toContain('keys recover');
    const unused = (): string[] => first.output.stdout.split('HEADGATE_METRICS_HOST has no effect without');
    await expect.poll(() => unused().length).toBe(2);
    await stop(first);

    // More keys than an organization may have: who is locked out can revoke none.
    for (let times = 0; times < 6; times += 1)
      expect(await runCli(['keys', 'recover'], { env: { DATABASE_URL: databaseUrl } })).toMatchObject({ code: 0 });
    const db = connectDb(databaseUrl);
    const rows = await db.sql`select actor_user_id, actor_key_id, target_type, after->>'name' as name from audit_log
      where action = 'api_key.recovered'`;
    await db.close();
    expect(rows).toHaveLength(6);
    expect(rows[0]).toEqual({
      actor_user_id: null,
      actor_key_id: null,
      target_type: 'api_key',
      name: 'Recovered management key',
    });

    const other = { HEADGATE_BOOTSTRAP_KEY: 'another-key-of-thirty-two-characters-1' };
    const second = processes.run({ home: processes.home(), databaseUrl, env: other });
    await second.url();
    const told = (): string[] => second.output.stdout.split('\n').filter((line) => line.includes('HEADGATE_BOOTSTRAP'));
    // The log is read apart from the address.
    await expect.poll(() => told().at(-1)).toMatch(/^\{.*\}$/);
    const lines = told();
    expect(lines).toHaveLength(1);
    expect(JSON.parse(lines[0] ?? '')).toMatchObject({
      level: 40,
      settings: ['HEADGATE_BOOTSTRAP_KEY'],
      msg: expect.stringMatching(/^HEADGATE_BOOTSTRAP_KEY had no effect: .*"npx headgate keys recover"/),
    });
    expect(lines[0]).not.toContain(other.HEADGATE_BOOTSTRAP_KEY);
    await stop(second);
  });

  it('revokes every other management key of platform administrators, also while a stolen one creates more', async () => {
    const databaseUrl = await processes.database();
    const gateway = processes.run({
      home: processes.home(),
      databaseUrl,
      env: { HEADGATE_BOOTSTRAP_KEY: givenKey, HEADGATE_MAX_ACTIVE_KEYS: '100000' },
    });
    const url = await gateway.url();
    const made: string[] = [];
    const steal = async (): Promise<void> => {
      for (;;) {
        const answer = await fetch(new URL('/v1/keys', url), {
          method: 'POST',
          headers: { authorization: `Bearer ${givenKey}`, 'content-type': 'application/json' },
          body: JSON.stringify({ name: 'thief', scope: 'management' }),
        });
        const body: Body = await answer.json();
        if (answer.status === 401) return;
        if (answer.status === 201) made.push(body.secret);
      }
    };
    const thieves = Array.from({ length: 8 }, steal);
    await eventually(async () => (made.length > 20 ? true : null));
    const recovered = await runCli(['keys', 'recover', '--revoke-others'], { env: { DATABASE_URL: databaseUrl } });
    expect(recovered).toMatchObject({ code: 0, stderr: '' });
    await Promise.all(thieves);
    const statuses = await Promise.all(made.map((secret) => statusOf(url, secret)));
    expect(statuses.filter((status) => status !== 401)).toEqual([]);
    const { data } = await clientOf(url, secretOf(recovered)).get('/v1/keys?status=active');
    expect(data).toMatchObject([{ name: 'Recovered management key' }]);
    await stop(gateway);
  });

  it('takes effect in gateways at once, also when the clock of its machine is wrong', async () => {
    const databaseUrl = await processes.database();
    const gateway = processes.run({
      home: processes.home(),
      databaseUrl,
      env: { HEADGATE_BOOTSTRAP_KEY: givenKey },
    });
    const url = await gateway.url();
    let lost = givenKey;
    for (const byMs of [-300_000, 300_000]) {
      expect(await statusOf(url, lost)).toBe(200);
      const wrong = `const right = Date.now; Date.now = () => right() + ${byMs};`;
      const env = {
        DATABASE_URL: databaseUrl,
        NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(wrong)}`,
      };
      const recovered = await runCli(['keys', 'recover', '--revoke-others'], { env, asProcess: true });
      expect(recovered).toMatchObject({ code: 0, stderr: '' });
      expect(await statusOf(url, lost)).toBe(401);
      lost = secretOf(recovered);
    }
    await stop(gateway);
  });
});
