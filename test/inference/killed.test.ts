import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { liftLimits } from '../support/gateway.ts';
import { type Body, chatBody, chatPath, eventually, readMetric, standinFile, writeEngines } from './kit.ts';

const repository = new URL('../../', import.meta.url).pathname;
const key = 'bootstrap-key-of-this-test-0123456789';
const children: ChildProcess[] = [];
const folders: string[] = [];

afterEach(async () => {
  for (const child of children) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    child.kill('SIGTERM');
    await once(child, 'exit');
  }
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
});

interface Gateway {
  readonly child: ChildProcess;
  readonly url: string;
}

/** The gateway as its users start it, with its own PostgreSQL. */
async function startProcess(dataDir: string, enginesDir: string): Promise<Gateway> {
  const { PATH, HOME } = process.env;
  const child = spawn(process.execPath, ['src/start.js'], {
    cwd: repository,
    env: {
      PATH,
      HOME,
      PORT: '0',
      HEADGATE_DATA_DIR: dataDir,
      HEADGATE_ENGINES_DIR: enginesDir,
      HEADGATE_BOOTSTRAP_KEY: key,
      LOG_LEVEL: 'warn',
    },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  children.push(child);
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (bytes: Buffer) => (said += bytes.toString()));
  const url = await eventually(async () => {
    if (child.exitCode !== null) throw new Error(said);
    return /http:\/\/127\.0\.0\.1:\d+/.exec(said)?.[0] ?? null;
  }, 40_000);
  await eventually(
    async () =>
      fetch(`${url}/v1/pricing`)
        .then(({ ok }) => ok)
        .catch(() => false),
    20_000,
  );
  return { child, url };
}

const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };

async function get(url: string, path: string): Promise<Body> {
  return (await fetch(new URL(path, url), { headers })).json();
}

/** Sends one request after another until the gateway is gone; notes those whose answer came whole. */
async function keepAsking(url: string, stream: boolean, complete: Map<string, number>): Promise<void> {
  for (;;) {
    try {
      const standin = { output_tokens: 5 + Math.floor(Math.random() * 10), tpot_ms: 1 };
      const body = JSON.stringify(
        chatBody({ stream, max_tokens: 50, standin, stream_options: stream ? { include_usage: true } : undefined }),
      );
      const answer = await fetch(new URL(chatPath, url), { method: 'POST', headers, body });
      const text = await answer.text();
      const isComplete =
        answer.status === 200 && (!stream || text.endsWith('data: [DONE]\n\n')) && !text.includes('"error"');
      const output = /"completion_tokens":(\d+)/.exec(text.slice(text.lastIndexOf('"usage"')))?.[1];
      if (isComplete) complete.set(answer.headers.get('x-request-id') ?? '', Number(output));
    } catch {
      return;
    }
  }
}

async function readAll(url: string): Promise<Body[]> {
  const all: Body[] = [];
  for (let cursor = ''; ;) {
    const page = await get(url, `/v1/usage/requests?limit=500${cursor}`);
    all.push(...page.data);
    if (!page.has_more) return all;
    cursor = `&cursor=${encodeURIComponent(page.next_cursor)}`;
  }
}

function pidsOf(dataDir: string): { engine: Body; postgres: number } {
  const running = join(dataDir, 'engines', 'running');
  const records = readdirSync(running).map((name): Body => JSON.parse(readFileSync(join(running, name), 'utf8')));
  expect(records).toHaveLength(1);
  const pidFile = readFileSync(join(dataDir, 'postgres', 'cluster', 'postmaster.pid'), 'utf8');
  return { engine: records[0], postgres: Number(pidFile.split('\n')[0]) };
}

describe('a gateway that is killed with -9 under load', () => {
  it('has every answer that was seen complete in its books once, and starts nothing twice', async () => {
    const parent = process.geteuid?.() === 0 ? '/tmp' : tmpdir();
    // Made by the gateway itself, so that PostgreSQL may enter it as another user.
    const dataDir = join(parent, `hg-killed-${randomBytes(6).toString('hex')}`);
    const enginesDir = writeEngines({
      chat: standinFile('chat').replace('engines/standin', join(repository, 'engines/standin')),
    });
    folders.push(dataDir, enginesDir);
    const first = await startProcess(dataDir, enginesDir);
    await (
      await fetch(new URL(chatPath, first.url), { method: 'POST', headers, body: JSON.stringify(chatBody({})) })
    ).text();
    await liftLimits(first.url, key);
    const before = pidsOf(dataDir);

    const complete = new Map<string, number>();
    const asking = Array.from({ length: 32 }, (_, index) => keepAsking(first.url, index % 2 === 0, complete));
    await eventually(async () => complete.size > 150, 20_000);
    first.child.kill('SIGKILL');
    await Promise.all(asking);

    const second = await startProcess(dataDir, enginesDir);
    const records = await readAll(second.url);
    const byId = new Map(records.map((record) => [record.id, record]));
    expect(byId.size).toBe(records.length);
    for (const [id, outputTokens] of complete) {
      expect(byId.get(id)).toMatchObject({ outcome: 'completed', output_tokens: outputTokens });
    }
    const spent = records.reduce((sum, { cost }) => sum + BigInt(Math.round(Number(cost) * 1e12)), 0n);
    const wallet = await get(second.url, '/v1/wallet');
    expect(BigInt(Math.round(Number(wallet.balance) * 1e12))).toBe(10_000_000_000_000n - spent);
    expect(wallet.held).toBe('0');

    const answer = await fetch(new URL(chatPath, second.url), {
      method: 'POST',
      headers,
      body: JSON.stringify(chatBody({})),
    });
    expect(answer.status).toBe(200);
    await answer.text();
    const after = pidsOf(dataDir);
    expect(after.engine).toMatchObject({ pid: before.engine.pid, replicaId: before.engine.replicaId });
    expect(after.postgres).toBe(before.postgres);
    expect(await readMetric(after.engine.socketPath, 'vllm:num_requests_running')).toBe(0);
  }, 120_000);
});
