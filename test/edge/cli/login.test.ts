import { chmodSync, existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { runCli, useFolders } from '#test/cli/run-cli.ts';
import { useTerminals } from './terminal.ts';

let gateway: TestGateway;
beforeAll(async () => {
  gateway = await startGateway();
});
afterAll(() => gateway.stop());
const folders = useFolders();
const terminals = useTerminals();

/** A user without any login. */
function user(): {
  home: string;
  file: string;
  run: (args: string[], input?: string, env?: object) => ReturnType<typeof runCli>;
} {
  const home = folders();
  const file = join(home, 'headgate', 'login.json');
  return {
    home,
    file,
    run: (args, input, env = {}) =>
      runCli(args, { env: { XDG_CONFIG_HOME: home, ...env }, ...(input !== undefined && { input }) }),
  };
}

/** A server that is no gateway, and what it was asked. */
async function stranger() {
  const seen: (string | undefined)[] = [];
  const server = createServer((request, response) => {
    seen.push(request.headers.authorization);
    response.end('<html>');
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const address = server.address();
  return {
    seen,
    url: `http://127.0.0.1:${typeof address === 'object' ? address?.port : 0}`,
    close: () => server.close(),
  };
}

describe('headgate login', () => {
  it('saves nothing when the gateway rejects the key', async () => {
    const { run, file } = user();
    const wrong = await run(['login', gateway.url], 'sk-hg-wrong\n');
    expect(wrong).toMatchObject({ code: 1, stdout: '' });
    // The error is about the key that was given; no variable has anything to do with it.
    expect(wrong.stderr).toMatch(/Invalid API key.*; nothing was saved\n {2}request [0-9a-f-]{36}\n/);
    expect(wrong.stderr).not.toContain('HEADGATE_API_KEY');
    expect(await run(['login', gateway.url], '')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('no key was given'),
    });
    expect(await run(['login', gateway.url], 'two words')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('one key and nothing else'),
    });
    expect(await run(['login', 'nonsense'], 'k')).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('HEADGATE_URL: must be a URL'),
    });
    expect(await run(['login', 'http://127.0.0.1:1'], 'k')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('is unreachable (ECONNREFUSED): is the gateway running? Nothing was saved\n'),
    });
    const other = await stranger();
    expect(await run(['login', other.url], 'k')).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('did not answer like a Headgate gateway'),
    });
    other.close();
    expect(existsSync(file)).toBe(false);
    expect((await run(['clusters', 'ls'])).stderr).toContain('save a key with "headgate login"');
  });

  it('saves gateway and key for this user only and for every command, until logout', async () => {
    const { run, file } = user();
    const done = await run(['login', `${gateway.url}/`, '--json'], `${gateway.key}\n`);
    expect(done).toMatchObject({ code: 0, stderr: '' });
    expect(JSON.parse(done.stdout)).toMatchObject({ object: 'login', url: gateway.url, file });
    expect(done.stdout).not.toContain(gateway.key);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(join(file, '..')).mode & 0o777).toBe(0o700);
    expect(await run(['clusters', 'ls'])).toMatchObject({ code: 0, stderr: '' });
    const out = await run(['logout']);
    expect(out).toMatchObject({
      code: 0,
      stdout: expect.stringContaining(`removed the key of ${gateway.url} from this machine`),
    });
    expect(existsSync(file)).toBe(false);
    expect((await run(['logout', gateway.url])).stdout).toContain('no key for ');
  });

  it('is overridden by the environment, and its key is sent to no other gateway', async () => {
    const { run, file } = user();
    await run(['login', gateway.url], gateway.key);
    const other = await stranger();
    expect(await run(['clusters', 'ls'], undefined, { HEADGATE_URL: other.url })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('HEADGATE_API_KEY is not set'),
    });
    expect(other.seen).toEqual([]);
    await run(['clusters', 'ls'], undefined, { HEADGATE_URL: other.url, HEADGATE_API_KEY: 'of-the-shell' });
    other.close();
    expect(other.seen).toEqual(['Bearer of-the-shell']);
    const wrong = await run(['clusters', 'ls'], undefined, { HEADGATE_API_KEY: 'sk-hg-wrong' });
    expect(wrong).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('set HEADGATE_API_KEY to a valid key'),
    });
    const again = await run(['login', gateway.url], gateway.key, { HEADGATE_API_KEY: 'sk-hg-wrong' });
    expect(again).toMatchObject({
      code: 0,
      stderr: expect.stringContaining('HEADGATE_API_KEY of this shell override'),
    });
    expect(readFileSync(file, 'utf8')).toContain(gateway.key);
  });

  it('is not used when other users can read the file', async () => {
    const { run, file } = user();
    await run(['login', gateway.url], gateway.key);
    chmodSync(file, 0o644);
    expect(await run(['clusters', 'ls'])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining(`"chmod 600 ${file}"`),
    });
    expect(await run(['help'])).toMatchObject({ code: 0, stderr: '' });
    expect(await run(['logout'])).toMatchObject({ code: 1, stdout: '', stderr: expect.stringContaining('chmod 600') });
    expect(existsSync(file)).toBe(true);
  });

  it('names the keys that it discards when the file is readable by others or invalid', async () => {
    const { run, file } = user();
    await run(['login', gateway.url], gateway.key);
    // The key of this gateway is replaced: nothing is lost.
    chmodSync(file, 0o640);
    expect(await run(['login', gateway.url], gateway.key)).toMatchObject({ code: 0, stderr: '' });
    const other = 'https://other.example.com';
    const { keys } = JSON.parse(readFileSync(file, 'utf8'));
    writeFileSync(file, JSON.stringify({ url: other, keys: { ...keys, [other]: 'sk-hg-other' } }));
    chmodSync(file, 0o644);
    const said = await run(['login', gateway.url], gateway.key);
    expect(said).toMatchObject({
      code: 0,
      stderr: `headgate: other users could read ${file}: its keys for ${other} are discarded; create new keys there\n`,
    });
    expect(JSON.parse(readFileSync(file, 'utf8'))).toEqual({ url: gateway.url, keys: { [gateway.url]: gateway.key } });
    writeFileSync(file, 'no JSON');
    expect(await run(['login', gateway.url], gateway.key)).toMatchObject({
      code: 0,
      stderr: `headgate: the content of ${file} was invalid and is discarded\n`,
    });
    expect(statSync(file).mode & 0o777).toBe(0o600);
  });

  it('says that the key of the login is no longer valid', async () => {
    const { run } = user();
    const { id, secret } = (await (await gateway.request('/v1/keys', { body: { name: 'laptop' } })).json()) as {
      id: string;
      secret: string;
    };
    await run(['login', gateway.url], secret);
    await gateway.request(`/v1/keys/${id}`, { method: 'DELETE' });
    const refused = await run(['clusters', 'ls']);
    expect(refused).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('run "headgate login" with another key'),
    });
  });

  it('asks for the key on a terminal without showing it', async () => {
    const { home, file } = user();
    const terminal = await terminals().open({ XDG_CONFIG_HOME: home });
    await terminal.type('headgate login\n');
    await terminal.shows('Gateway [http://127.0.0.1:8080]: ');
    await terminal.type(`${gateway.url}\n`);
    await terminal.shows('API key (not shown): ');
    await terminal.type(`${gateway.key}\n`);
    const screen = await terminal.shows('logged in at');
    expect(screen).not.toContain(gateway.key.slice(-8));
    expect(readFileSync(file, 'utf8')).toContain(gateway.key);
    // Ctrl-C ends the question.
    await terminal.type('clear\n');
    await terminal.shows(/^\$ \s*$/);
    await terminal.type('headgate login\n');
    await terminal.shows('Gateway [');
    await terminal.key('C-c');
    await terminal.shows('headgate: interrupted');
    await terminal.type('echo "code $?"\n');
    await terminal.shows('code 130');
  });
});
