import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { brokenFile, standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';
import { say } from '#test/cli/in-process.ts';

/** Commands that somebody types who has `headgate` since a few days, and takes for granted. */

const folders = useFolders();
let gateway: TestGateway;
beforeAll(async () => {
  const broken = brokenFile('broken');
  gateway = await startGateway({ enginesDir: writeEngines({ broken, chat: standinFile('chat') }) });
});
afterAll(() => gateway.stop());

const words = (...args: string[]) => say(args, gateway);

describe('hints of the command line', () => {
  it('say to pass a key on standard input when it is a login argument', async () => {
    for (const option of ['--key', '--api-key', '--token']) {
      const { code, stderr, stdout } = await runCli(['login', gateway.url, option, gateway.key], {
        env: { HOME: folders() },
      });
      expect([code, stdout]).toEqual([2, '']);
      expect(stderr).toContain('pass it on standard input');
      expect(stderr).not.toContain(gateway.key);
    }
    for (const nothing of ['--constructor', '--toString']) {
      const { code, stderr } = await words('audit', nothing);
      expect([code, stderr]).toEqual([2, expect.not.stringContaining('native code')]);
      const login = await runCli(['login', nothing], { env: { HOME: folders() } });
      expect([login.code, login.stderr]).toEqual([2, expect.not.stringContaining('native code')]);
    }
  });

  it('name the way to add credit when the balance is too low', async () => {
    const opened = await gateway.request('/v1/organizations', { body: { name: 'Without credit' } });
    const { management_key: key } = (await opened.json()) as { management_key: string };
    const poor = await runCli(['chat', '-m', 'chat', 'Hello!'], {
      env: { HEADGATE_URL: gateway.url, HEADGATE_API_KEY: key },
    });
    expect(poor).toMatchObject({ code: 1, stdout: '' });
    expect(poor.stderr).toMatch(
      /The balance does not cover this request: [^\n]*; "headgate wallet" shows the balance, and a platform administrator adds credit with "headgate wallet credit USD --reference TEXT"\n {2}request [0-9a-f-]{36}\n$/,
    );
  });

  it('suggest a similar stack name, and a stack is found by its title', async () => {
    const [first]: { name: string; title: string }[] = JSON.parse((await words('stacks', 'ls', '--json')).stdout).data;
    expect(first).toBeDefined();
    const { name = '', title = '' } = first ?? {};
    expect((await words('stacks', 'show', title.toUpperCase())).stdout).toContain(`name: ${name}`);
    const near = await words('stacks', 'show', `${name.slice(0, -1)}x`);
    expect([near.code, near.stdout]).toEqual([1, '']);
    expect(near.stderr).toContain(`did you mean ${name}?`);
    const far = await words('stacks', 'show', 'zzzzzzzzzz');
    expect(far.code).toBe(1);
    expect(far.stderr).not.toContain('did you mean');
  });
});

describe('output of the command line', () => {
  it('shows the times of an engine in a readable format', async () => {
    const body = { model: 'broken', messages: [{ role: 'user', content: 'x' }] };
    expect((await gateway.request('/v1/chat/completions', { body })).status).toBe(503);
    const shown = await words('engines', 'show', 'broken');
    expect(shown.stdout).toMatch(/since: \d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2} UTC/);
    expect(shown.stdout).toMatch(/retry_at: (null|\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2} UTC)/);
    expect(shown.stdout).not.toMatch(/: 1\d{9}(\.\d+)?$/m);
    const json = JSON.parse((await words('engines', 'show', 'broken', '--json')).stdout);
    expect(typeof json.since).toBe('number');
  });

  it('shows numbers, not words, in the number columns of orgs ls', async () => {
    const { stdout } = await words('orgs', 'ls');
    const columns = stdout.split('\n').map((line) => line.split(/ {2,}/).slice(3, 6));
    const numbers = columns.slice(1).filter(({ length }) => length === 3);
    expect(numbers).not.toHaveLength(0);
    for (const one of numbers.flat()) expect(one).toMatch(/^\d+(?:\.\d+)?(?: of \d+)?$/);
  });

  it("says in an empty cost report how hours start, with the report's time zone", async () => {
    const { stdout } = await words('costs', '--month', '2026-03', '--tz', 'Europe/Berlin');
    expect(stdout).toContain('2026-03-01 00:00 to 2026-04-01 00:00 (Europe/Berlin)');
    expect(stdout).toContain('no usage');
    expect(stdout).toContain('headgate clusters ls');
  });

  it('is the same with and without ls for commands with one list', async () => {
    expect((await words('audit', 'ls')).stdout).toBe((await words('audit')).stdout);
    expect((await words('models', 'ls')).stdout).toContain('chat');
    expect((await words('audit', 'sl')).code).toBe(2);
  });
});

describe('headgate doctor', () => {
  it('checks the gateway of headgate login', async () => {
    const home = folders();
    const env = { HOME: home, XDG_CONFIG_HOME: home, HEADGATE_DATA_DIR: folders() };
    const kept = await runCli(['login', gateway.url], { env, input: gateway.key });
    expect(kept.code).toBe(0);
    const examined = async () =>
      JSON.parse((await runCli(['doctor', '--json'], { env })).stdout).checks as {
        name: string;
        state: string;
        message: string;
      }[];
    const found = async () => (await examined()).find(({ name }) => name === 'login');
    expect(await found()).toMatchObject({ state: 'ok', message: expect.stringContaining(gateway.url) });
    expect((await gateway.request(`/v1/keys/${await ownKey()}`, { method: 'DELETE' })).status).toBeLessThan(300);
    expect(await found()).toMatchObject({ state: 'wrong', message: expect.stringContaining('cannot be used') });
  });
});

async function ownKey(): Promise<string> {
  const { data } = (await (await gateway.request('/v1/keys?status=active')).json()) as { data: { id: string }[] };
  return data[0]?.id ?? '';
}
