import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { freePort } from '#test/free-port.ts';

const program = new URL('../../../src/programs/docker-gate.ts', import.meta.url).pathname;

let folder = '';
let engine: Server;
let children: ChildProcess[] = [];

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'headgate-socket-'));
  chmodSync(folder, 0o755);
  engine = createServer((_incoming, answer) => answer.end('OK'));
  await new Promise<void>((resolve) => engine.listen(socket(), resolve));
});

afterEach(async () => {
  for (const child of children) {
    const ended = new Promise((resolve) => child.once('exit', resolve));
    if (child.exitCode === null && child.kill('SIGTERM')) await ended;
  }
  children = [];
  await new Promise((resolve) => engine.close(resolve));
  rmSync(folder, { recursive: true, force: true });
});

const socket = (): string => join(folder, 'docker.sock');

function own(group: number, mode: number): void {
  chownSync(socket(), 0, group);
  chmodSync(socket(), mode);
}

function environment(port: number, more: Readonly<Record<string, string>> = {}): Record<string, string> {
  const { PATH = '' } = process.env;
  const gate = { HEADGATE_DOCKER_SOCKET: socket(), HEADGATE_DOCKER_GATE_USER: '10001' };
  return { PATH, PORT: String(port), ...gate, ...more };
}

/** The kernel's status of a gate that serves. */
async function statusOf(env: Record<string, string>): Promise<Record<string, string>> {
  const child = spawn(process.execPath, [program], { env, stdio: ['ignore', 'pipe', 'inherit'] });
  children.push(child);
  await new Promise<void>((resolve) => {
    child.stdout.on('data', (text: Buffer) => {
      if (text.includes('accepts requests')) resolve();
    });
  });
  const lines = readFileSync(`/proc/${child.pid}/status`, 'utf8').split('\n');
  return Object.fromEntries(lines.map((line) => [line.split(':')[0], line.split(/:\s*/)[1]?.trim() ?? '']));
}

/** The answer of a gate that serves; it is started for the request. */
async function ping(env: Record<string, string>): Promise<{ status: number; said: string }> {
  await statusOf(env);
  return askPing(env);
}

async function askPing({ PORT = '' }: Record<string, string>): Promise<{ status: number; said: string }> {
  const answer = await fetch(`http://127.0.0.1:${PORT}/_ping`);
  return { status: answer.status, said: await answer.text() };
}

describe('the Docker gate started as root', { tags: 'root' }, () => {
  it.each([
    [0o600, 0, 'with mode 600: let its group read and write it (chmod g+rw'],
    [0o660, 65_534, 'set userns_mode: host for the service docker-gate'],
  ])('reports the remedy for a socket of mode %o and group %i', async (mode, group, sentence) => {
    own(group, mode);
    const { status, said } = await ping(environment(await freePort(), { HEADGATE_DOCKER_GATE_GROUP: '4711' }));
    expect(status).toBe(502);
    expect(said).toContain(sentence);
  });

  it('reports the remedy for a wrong group, a missing socket, and a socket without an answer', async () => {
    own(54_321, 0o660);
    const wrongly = environment(await freePort(), { HEADGATE_DOCKER_GATE_GROUP: '4711' });
    expect((await ping(wrongly)).said).toContain('set DOCKER_GID=54321');
    chmodSync(socket(), 0o666);
    engine.closeAllConnections();
    // Takes the socket with it.
    await new Promise((resolve) => engine.close(resolve));
    expect((await askPing(wrongly)).said).toContain('set DOCKER_SOCKET');
    mkdirSync(socket());
    const folderSaid = (await askPing(wrongly)).said;
    expect(folderSaid).toContain('is a folder, not a Docker socket');
    expect(folderSaid).toContain('set DOCKER_SOCKET');
    rmSync(socket(), { recursive: true });
    writeFileSync(socket(), '');
    chmodSync(socket(), 0o666);
    expect((await askPing(wrongly)).said).toContain('The Docker engine does not respond at');
  });

  it('exits when it cannot drop root', () => {
    const env = environment(1);
    const all = ['--bounding-set=-all', '--inh-caps=-all', process.execPath, program];
    const { status, stderr } = spawnSync('setpriv', all, { env, encoding: 'utf8' });
    expect([status, stderr]).toEqual([1, expect.stringContaining('requires the capabilities SETUID and SETGID')]);
  });

  it.each([54_321, 0])('runs with the group %i of its socket, as another user, without capabilities', async (group) => {
    own(group, 0o660);
    const env = environment(await freePort());
    const status = await statusOf(env);
    expect(status['Uid']).toBe('10001\t10001\t10001\t10001');
    expect(status['Gid']).toBe('10001\t10001\t10001\t10001');
    expect(status['Groups']).toBe(String(group));
    for (const name of ['CapInh', 'CapPrm', 'CapEff', 'CapAmb']) expect(status[name]).toMatch(/^0+$/);
    expect(await askPing(env)).toEqual({ status: 200, said: 'OK' });
  });

  it('keeps its user when none is configured', async () => {
    own(0, 0o660);
    const { HEADGATE_DOCKER_GATE_USER: _user, ...env } = environment(await freePort());
    expect((await statusOf(env))['Uid']).toMatch(/^0\t/);
  });
});
