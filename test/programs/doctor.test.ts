import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { runCli, useFolders } from '../edge/cli/run-cli.ts';
import { engineFile, useProcesses } from './gateway-process.ts';

const processes = useProcesses();
const folders = useFolders();

interface Finding {
  readonly name: string;
  readonly state: 'ok' | 'note' | 'wrong';
  readonly message: string;
  readonly next?: string;
}

/** What the doctor finds, by what it looked at. */
async function examine(env: Record<string, string>) {
  const { code, stdout } = await runCli(['doctor', '--json'], { env });
  const { healthy, checks } = JSON.parse(stdout) as { healthy: boolean; checks: Finding[] };
  const wrong = checks.filter(({ state }) => state === 'wrong');
  expect([code, healthy]).toEqual(wrong.length === 0 ? [0, true] : [1, false]);
  // What is wrong comes with what to do.
  expect(wrong.every(({ next }) => (next ?? '') !== '')).toBe(true);
  return { stdout, wrong: Object.fromEntries(wrong.map(({ name, message }) => [name, message])), checks };
}

describe('headgate doctor', () => {
  it('names each thing that is wrong, and tells no secret', async () => {
    const enginesDir = folders();
    writeFileSync(join(enginesDir, 'a.yaml'), engineFile('a').replace('driver: process', 'driver: hamster'));
    const dataDir = folders();
    writeFileSync(join(dataDir, 'platform.key'), 'not a key\n');
    chmodSync(join(dataDir, 'platform.key'), 0o600);
    const found = await examine({
      DATABASE_URL: 'postgres://u:hidden@127.0.0.1:1/x',
      REDIS_URL: 'redis://:hidden@127.0.0.1:1',
      HEADGATE_DATA_DIR: dataDir,
      HEADGATE_ENGINES_DIR: enginesDir,
      HEADGATE_TERRAFORM_BIN: '/nonexistent/tofu',
    });
    expect(found.wrong).toEqual({
      postgresql: expect.stringContaining('DATABASE_URL: the database cannot be used'),
      redis: expect.stringContaining('REDIS_URL: Redis cannot be used'),
      'engine files': expect.stringContaining('a.yaml:'),
      terraform: expect.stringContaining('/nonexistent/tofu, which is no program here'),
      'platform key': expect.stringContaining('platform.key must hold a key'),
    });
    expect(found.stdout).not.toContain('hidden');
  });

  it('finds engines whose program or Docker engine is not there', async () => {
    const enginesDir = folders();
    const process = engineFile('a').replace(/command: .*/, 'command: ["no-such-vllm", "--uds", "{socket}"]');
    writeFileSync(join(enginesDir, 'a.yaml'), process);
    const container = engineFile('b')
      .replace('driver: process', 'driver: docker\nimage: vllm/vllm-openai:v0.29.0')
      .replace(/command: .*/, 'args: ["--model", "x"]');
    writeFileSync(join(enginesDir, 'b.yaml'), container);
    const env = { HEADGATE_ENGINES_DIR: enginesDir, DOCKER_HOST: 'unix:///nonexistent/docker.sock' };
    const { wrong } = await examine({ ...env, HEADGATE_DATA_DIR: processes.home().dataDir });
    expect(wrong).toEqual({
      'engine files': 'a: its program no-such-vllm is not on the PATH',
      docker: expect.stringMatching(/^local: the Docker engine cannot be used \(.*ENOENT/),
    });
  });

  it.runIf(process.geteuid?.() === 0)('finds a folder that keeps PostgreSQL from its data', async () => {
    const closed = folders();
    chmodSync(closed, 0o700);
    const { wrong } = await examine({ HEADGATE_DATA_DIR: join(closed, 'data'), HEADGATE_ENGINES_DIR: folders() });
    expect(wrong['data folder']).toContain(`cannot enter ${closed}`);
    chmodSync(closed, 0o711);
    const opened = await examine({ HEADGATE_DATA_DIR: join(closed, 'data'), HEADGATE_ENGINES_DIR: folders() });
    expect(opened.wrong).toEqual({});
  });

  it('looks at the rest, where a setting is wrong, as far as that goes', async () => {
    const { wrong, checks } = await examine({ PORT: 'eighty' });
    expect(wrong).toEqual({ configuration: expect.stringContaining('PORT: must be a whole number') });
    expect(checks.length).toBeGreaterThan(10);
  });

  it('finds nothing wrong before the first start and beside a gateway, and changes nothing', async () => {
    const home = processes.home();
    const env = { HEADGATE_DATA_DIR: home.dataDir, HEADGATE_ENGINES_DIR: home.enginesDir, PORT: '20003' };
    const before = await runCli(['doctor'], { env });
    expect(before).toMatchObject({ code: 0, stderr: '', stdout: expect.stringMatching(/\nnothing is wrong\n$/) });
    expect(before.stdout).toContain('is not there yet; the first start makes it');
    const gateway = processes.run({ home, databaseUrl: null });
    const { port } = new URL(await gateway.url());
    const { checks, wrong } = await examine({ ...env, PORT: port });
    expect(wrong).toEqual({});
    const said = Object.fromEntries(checks.map(({ name, message }) => [name, message]));
    expect(checks.find(({ name }) => name === 'postgresql')?.message).toMatch(
      /^PostgreSQL 18\S* answers \(built in\)$/,
    );
    expect(said['gateway']).toBe(`runs at http://127.0.0.1:${port}`);
    expect(said['engine files']).toContain('1 of 1');
  });
});
