import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { liftLimits } from '#test/gateway.ts';
import { type Complete, expectBooked, keepAsking } from '#test/inference/booked-load.ts';
import {
  type Body,
  chatBody,
  chatPath,
  eventually,
  json,
  readMetric,
  standinFile,
  writeEngines,
} from '#test/inference/inference-gateway.ts';
import { runMark } from '#test/guardian.ts';

const repository = new URL('../../../', import.meta.url).pathname;
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
  const child = spawn(process.execPath, ['src/programs/start.js'], {
    cwd: repository,
    env: {
      PATH,
      HOME,
      ...runMark(),
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
  });
  await eventually(async () =>
    fetch(`${url}/v1/pricing`)
      .then(({ ok }) => ok)
      .catch(() => false),
  );
  return { child, url };
}

function pidsOf(dataDir: string): { engine: Body; postgres: number } {
  const running = join(dataDir, 'engines', 'running');
  const records = readdirSync(running).map((name): Body => JSON.parse(readFileSync(join(running, name), 'utf8')));
  expect(records).toHaveLength(1);
  const pidFile = readFileSync(join(dataDir, 'postgres', 'cluster', 'postmaster.pid'), 'utf8');
  return { engine: records[0], postgres: Number(pidFile.split('\n')[0]) };
}

const headers = { authorization: `Bearer ${key}`, ...json };

describe('a gateway killed with -9 under load', () => {
  it('records every completed answer once, and starts no engine twice', async () => {
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

    const complete: Complete = new Map();
    const asking = Array.from({ length: 32 }, (_, index) =>
      keepAsking({ url: first.url, key }, index % 2 === 0, complete),
    );
    await eventually(async () => complete.size > 150);
    first.child.kill('SIGKILL');
    await Promise.all(asking);

    const second = await startProcess(dataDir, enginesDir);
    await expectBooked({ url: second.url, key }, complete);

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
  });
});
