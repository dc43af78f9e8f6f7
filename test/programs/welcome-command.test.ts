import { describe, expect, it } from 'vitest';
import { runCli, useFolders } from '#test/cli/run-cli.ts';
import { cookieOf, send, useLink } from '#test/portal/visitor.ts';
import { useProcesses } from '#test/programs/gateway-process.ts';

const processes = useProcesses();
const folder = useFolders();

describe('headgate welcome', () => {
  it('exits with 2 when there is no administrator to sign in, and creates nothing', async () => {
    const none = await runCli(['welcome'], { env: { HEADGATE_DATA_DIR: folder() } });
    expect(none).toMatchObject({ code: 2, stdout: '', stderr: expect.stringContaining('contains no database of a') });
    const empty = await runCli(['welcome'], { env: { DATABASE_URL: await processes.database() } });
    expect(empty).toMatchObject({
      code: 2,
      stdout: '',
      stderr: expect.stringContaining('has no platform administrator'),
    });
    expect(await runCli(['welcome', 'me'])).toMatchObject({ code: 2 });
  });

  it('creates a link that signs in to the running gateway; only a first start prints one', async () => {
    const home = processes.home();
    const databaseUrl = await processes.database();
    const gateway = processes.run({ home, databaseUrl });
    const url = await gateway.url();
    const [, printed = ''] = await gateway.printed(/\/welcome\?token=(\S+)/);
    const env = { DATABASE_URL: databaseUrl, HEADGATE_URL: url };
    const told = await runCli(['welcome'], { env, asProcess: true });
    expect(told).toMatchObject({ code: 0, stderr: '', stdout: expect.stringContaining('admin@localhost') });
    const made: { url: string; user_email: string } = JSON.parse((await runCli(['welcome', '--json'], { env })).stdout);
    expect(made).toMatchObject({
      url: expect.stringContaining(`${url}/welcome?token=`),
      user_email: 'admin@localhost',
    });

    for (const token of [printed, new URL(made.url).searchParams.get('token') ?? '']) {
      const opened = await useLink(url, token);
      expect(opened.status).toBe(303);
      const headers = { accept: 'text/html', cookie: cookieOf(opened) };
      expect((await send(`${url}/`, { headers })).text).toContain('admin@localhost');
      expect((await useLink(url, token)).status).toBe(404);
    }
    // Nobody need say where it listens: its data folder does.
    const noted = { DATABASE_URL: databaseUrl, HEADGATE_DATA_DIR: home.dataDir };
    expect((await runCli(['welcome'], { env: noted })).stdout).toContain(`${url}/welcome?token=`);
    gateway.signal('SIGTERM');
    await gateway.exited;
    const again = processes.run({ home, databaseUrl });
    await again.url();
    expect(again.output.stdout).not.toContain('/welcome');
  });
});
