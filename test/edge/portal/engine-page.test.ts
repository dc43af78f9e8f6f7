import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { brokenFile, eventually, standinFile } from '#test/inference/inference-gateway.ts';
import { type Shown, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** The page of an engine, with a stand-in that really runs. */

/** Prints what `nvidia-smi` prints; GPU-11 is busy, and GPU-22 does not report its use. */
const smi = `#!/bin/sh
case "$*" in
  *--query-gpu=uuid,memory.total*) printf 'GPU-11, 81559, NVIDIA H100, 0\\nGPU-22, 81559, NVIDIA H100, 1\\n' ;;
  *GPU-11*--query-gpu=uuid,memory.used*) printf 'GPU-11, 40000, 81559, 93\\nGPU-22, 4, 81559, [N/A]\\n' ;;
  *--query-gpu=uuid,memory.used*) exit 1 ;;
  *) true ;;
esac
`;

let folder = '';
let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hg-engine-page-'));
  for (const name of ['bin', 'engines']) mkdirSync(join(folder, name));
  writeFileSync(join(folder, 'bin', 'nvidia-smi'), smi);
  chmodSync(join(folder, 'bin', 'nvidia-smi'), 0o755);
  const write = (name: string, text: string): void => writeFileSync(join(folder, 'engines', `${name}.yaml`), text);
  write('chat', standinFile('chat'));
  write('large', standinFile('large', { flags: ['--tensor-parallel-size', '2'], lines: ['gpus: { count: 2 }'] }));
  write('broken', brokenFile('broken'));
  const PATH = `${join(folder, 'bin')}:${process.env['PATH'] ?? ''}`;
  gateway = await startGateway({ enginesDir: join(folder, 'engines'), env: { PATH } });
  admin = await signInVisitor(gateway);
});
afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function show(path: string): Promise<string> {
  const { text } = await admin.get(path);
  return text.replaceAll(/<[^>]*>/g, ' ').replaceAll(/\s+/g, ' ');
}

/** JSON of any shape; tests compare it. */
type Json = ReturnType<JSON['parse']>;

async function read(path: string): Promise<Json> {
  return (await gateway.request(path)).json();
}

const chat = (model = 'chat') =>
  gateway.request('/v1/chat/completions', {
    body: { model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 },
  });

describe('the last start on the page of an engine', () => {
  it('is left out before the first start', async () => {
    expect(await show('/portal/engines/chat')).not.toContain('Last start');
  });

  it('shows each phase with its time and duration', async () => {
    expect((await chat()).status).toBe(200);
    const text = await show('/portal/engines/chat');
    expect(text).toMatch(
      /Last start .*Creates the process \d{4}-.*Loads the model, .*Runs canaries .*Ready to serve \d{4}-.*in total\./,
    );
  });

  it('shows why a start failed', async () => {
    expect((await chat('broken')).status).toBe(503);
    await eventually(async () => (await show('/portal/engines/broken')).includes('Failed'));
    expect(await show('/portal/engines/broken')).toMatch(/Last start .*Creates the process .*Failed [A-Z]/);
  });
});

describe('the load of an engine', () => {
  it('is empty before a replica runs', async () => {
    const text = await show('/portal/engines/large');
    expect(text).toContain('No readings in the last hour They begin a few seconds after a replica is ready.');
    expect(text).toContain('No readings in the last hour They begin when a replica holds a GPU.');
    const { load, gpus } = await read('/v1/admin/engines/large/history');
    expect([load, gpus]).toEqual([[], []]);
  });

  it('has running and waiting requests, the use of the KV cache and tokens per second', async () => {
    expect((await chat('large')).status).toBe(200);
    await eventually(async () => (await read('/v1/admin/engines/large')).load !== null);
    expect((await chat('large')).status).toBe(200);
    // The tokens of the second request come between two readings; each look at the engine takes one.
    const { load } = await eventually(async () => {
      const engine = await read('/v1/admin/engines/large');
      return engine.load.generation_tokens_per_second > 0 ? engine : null;
    });
    expect(load).toMatchObject({ running: 0, waiting: 0, kv_cache_use: expect.any(Number) });
    expect(load.prompt_tokens_per_second).toBeGreaterThan(0);
    const history = await read('/v1/admin/engines/large/history');
    expect(history).toMatchObject({ object: 'engine_history', id: 'large' });
    expect(history.load.at(0).generation_tokens_per_second).toBeNull();
    const text = await show('/portal/engines/large');
    expect(text).toMatch(/Engine queue 0 waiting requests inside the engine/);
    expect(text).toMatch(/Load of the last hour Tokens per second .*KV cache in use/);
    expect(text).toMatch(/Values by time Time \(UTC\) .*\d\d:\d\d [\d.]+ tokens\/s/);
  });

  it('has the memory and the use of each GPU', async () => {
    const engine = await eventually(async () => {
      const found = await read('/v1/admin/engines/large');
      return found.gpu_use.length === 2 ? found : null;
    });
    const mebibyte = 2 ** 20;
    expect(engine.gpu_use).toMatchObject([
      {
        id: 'GPU-11',
        host: 'local',
        memory_used_bytes: 40_000 * mebibyte,
        memory_bytes: 81_559 * mebibyte,
        busy: 0.93,
      },
      { id: 'GPU-22', host: 'local', memory_used_bytes: 4 * mebibyte, busy: null },
    ]);
    const { gpus } = await read('/v1/admin/engines/large/history');
    expect(gpus.map(({ id, samples }: Json) => [id, samples[0].busy])).toEqual([
      ['GPU-11', 0.93],
      ['GPU-22', null],
    ]);
    expect(await show('/portal/engines/large')).toMatch(
      /GPU-11 local 39 GiB of 80 GiB 39 GiB 93 % 93 % GPU-22 local 0\.0 GiB of 80 GiB 0\.0 GiB unknown unknown/,
    );
  });

  it('says why there is no GPU', async () => {
    expect(await show('/portal/engines/chat')).toContain('No GPU The engine file asks for no GPU.');
  });

  it('is answered without the rest of the page, for the script that replaces it', async () => {
    const { text } = await admin.get('/portal/engines/large/charts');
    expect(text).toMatch(/^\s*<div\s+id="charts"/);
    expect(text).not.toContain('<html');
  });
});

describe('the log on the page of an engine', () => {
  const logIn = ({ text }: Shown): string => /<pre[^>]*role="log"[^>]*>(.*?)<\/pre>/s.exec(text)?.[1]?.trim() ?? '';

  it('shows only the lines that contain the searched text, on the page and for its script', async () => {
    const all = logIn(await admin.get('/portal/engines/chat'));
    expect(all).toContain('Application startup complete');
    const found = await admin.get('/portal/engines/chat?q=startup%20COMPLETE');
    expect(logIn(found).split('\n')).toEqual([expect.stringContaining('Application startup complete')]);
    expect(found.text).toContain('data-log="/portal/engines/chat/log?q=startup+COMPLETE"');
    expect((await admin.get('/portal/engines/chat/log?q=startup%20COMPLETE')).text).toBe(logIn(found));
  });

  it('says that no line contains the text', async () => {
    const found = await admin.get('/portal/engines/chat?q=%3Cscript%3E');
    expect(logIn(found)).toMatch(/^None of the last \d+ lines contains this text\.$/);
    expect(found.text).not.toContain('<script>');
  });
});
