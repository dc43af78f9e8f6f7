import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { brokenFile, eventually, standinFile } from '#test/inference/inference-gateway.ts';
import { type Shown, signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** The fleet as its operator sees it: GPUs with their memory, and the result of a changed file. */

const smi = `#!/bin/sh
case "$*" in
  *--query-gpu=uuid,memory.total*) printf 'GPU-11, 81559, NVIDIA H100, 0\\nGPU-22, 81559, NVIDIA H100, 1\\n' ;;
  *--query-gpu=uuid,memory.used*) printf 'GPU-11, 4, 81559\\nGPU-22, 4, 81559\\n' ;;
  *) true ;;
esac
`;

let folder = '';
let gateway: TestGateway;
let admin: Visitor;

const writeEngine = (text: string): void => writeFileSync(join(folder, 'engines', 'chat.yaml'), text);
const held = (flags: readonly string[] = []): string => standinFile('chat', { flags, lines: ['gpus: { count: 1 }'] });

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hg-fleet-'));
  for (const name of ['bin', 'engines']) mkdirSync(join(folder, name));
  writeFileSync(join(folder, 'bin', 'nvidia-smi'), smi);
  chmodSync(join(folder, 'bin', 'nvidia-smi'), 0o755);
  writeEngine(held());
  const broken = brokenFile('broken');
  writeFileSync(join(folder, 'engines', 'broken.yaml'), broken);
  // Off in all years, except for a minute on 29 February.
  const times = [
    '{cron: "1 0 29 2 *", timezone: UTC, min_replicas: 1}',
    '{cron: "*/2 * * * *", timezone: Europe/Berlin, max_replicas: 0}',
  ];
  const lines = [`schedule: [${times.join(', ')}]`, 'fallbacks: [chat]'];
  writeFileSync(join(folder, 'engines', 'nightly.yaml'), standinFile('nightly', { lines }));
  const PATH = `${join(folder, 'bin')}:${process.env['PATH'] ?? ''}`;
  gateway = await startGateway({ enginesDir: join(folder, 'engines'), env: { PATH } });
  admin = await signInVisitor(gateway);
});
afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

const textOf = ({ text }: Shown): string => text.replaceAll(/<[^>]*>/g, ' ').replaceAll(/\s+/g, ' ');
const show = async (path: string): Promise<string> => textOf(await admin.get(path));

async function ask(model = 'chat', status = 200): Promise<void> {
  const body = { model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 };
  const answer = await gateway.request('/v1/chat/completions', { body });
  expect([model, answer.status]).toEqual([model, status]);
  await answer.text();
}

describe('the engines page', () => {
  it('shows each GPU with its memory and its user', async () => {
    await ask();
    const text = await show('/portal/engines');
    expect(text).toMatch(/GPUs in use 1 of 2 159 GiB in total/);
    const gpus = [...text.matchAll(/GPU-(?:11|22) [^:]*GiB ?: (\w+)/g)].map(([, by]) => by);
    expect(new Set(gpus)).toEqual(new Set(['chat', 'free']));
  });
});

describe('a changed engine file', () => {
  it('shows the rejection with its reason when the new version does not start, and the old one continues', async () => {
    writeEngine(held(['--no-such-flag']));
    const read = await admin.post('/portal/engines-reload', { engine: 'chat' });
    expect(read.headers.location).toBe('/portal/engines/chat?notice=reloaded');
    await eventually(async () => {
      await ask();
      return (await show('/portal/engines/chat')).includes('was rejected. The old version stays in use');
    });
    const page = await show('/portal/engines/chat');
    expect(page).toMatch(
      /The new version of \S+ was rejected\. The old version stays in use\. .*rejected its settings/,
    );
    expect(page).toContain('new version rejected');
    expect(page).toContain('Reload engine files');
    expect(await show('/portal/engines')).toContain('new version rejected');
    await ask();
  });

  it('takes effect when the new version answers, and the page shows who reloaded it', async () => {
    writeEngine(held(['--output-tokens', '2']));
    await admin.post('/portal/engines-reload', { engine: 'chat' });
    await eventually(async () => !/new version rejected|checking new version/.test(await show('/portal/engines/chat')));
    const page = await show('/portal/engines/chat');
    expect(page).toContain('reloaded the engine files');
    await ask();
  });
});

describe('an engine that its schedule keeps off', () => {
  it('shows why on its page, with the next change, and no button to start it', async () => {
    const page = await show('/portal/engines/nightly');
    expect(page).toContain('off by schedule');
    expect(page).toMatch(/In effect \*\/2 \* \* \* \* Europe\/Berlin: off, since/);
    expect(page).toMatch(/Next change 1 0 29 2 \* UTC: 1 to 1 replicas, at/);
    expect((await admin.get('/portal/engines/nightly')).text).not.toContain('/portal/engines/nightly/start');
  });

  it('rejects requests as an engine that a command stopped does', async () => {
    const body = { model: 'nightly', messages: [{ role: 'user', content: 'Hello' }] };
    const answer = await gateway.request('/v1/chat/completions', { body });
    expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, null]);
    const { error } = (await answer.json()) as { error: object };
    expect(error).toMatchObject({ message: 'The schedule of this model keeps it off at this time.' });
  });

  it('lets a fallback answer', async () => {
    const body = { model: 'nightly', messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 };
    const answer = await gateway.request('/v1/chat/completions', {
      body,
      headers: { 'x-headgate-allow-fallback': 'true' },
    });
    expect([answer.status, ((await answer.json()) as { model: string }).model]).toEqual([200, 'chat']);
  });
});

describe('an engine command', () => {
  const post = async (path: string): Promise<readonly [number, string]> => {
    const { status, headers } = await admin.post(path);
    return [status, String(headers.location)];
  };
  const engine = async (): Promise<{ state: string; replicas: { id: string }[] }> =>
    (await (await gateway.request('/v1/admin/engines/chat')).json()) as { state: string; replicas: { id: string }[] };

  it('asks to confirm a restart, and replaces the replica', async () => {
    await ask();
    const [before] = (await engine()).replicas;
    expect(await show('/portal/engines/chat/restart')).toContain('Each replica is replaced');
    expect(await post('/portal/engines/chat/restart')).toEqual([303, '/portal/engines/chat?notice=restart']);
    expect(await show('/portal/engines/chat?notice=restart')).toContain('Restart requested.');
    await eventually(async () => {
      const { state, replicas } = await engine();
      return state === 'ready' && replicas.length === 1 && replicas[0]?.id !== before?.id;
    });
    expect(await show('/portal/engines/chat')).toContain('restarted the engine');
  });

  it('clears a failure on the page of the engine, and the next request starts it', async () => {
    await ask('broken', 503);
    const failed = await show('/portal/engines/broken');
    expect(failed).toContain('not-there.js');
    expect(failed).toContain('Clear failure');
    writeFileSync(join(folder, 'engines', 'broken.yaml'), standinFile('broken'));
    await admin.post('/portal/engines-reload');
    expect(await post('/portal/engines/broken/reset')).toEqual([303, '/portal/engines/broken?notice=reset']);
    await ask('broken');
    expect(await show('/portal/engines/broken')).not.toContain('Clear failure');
  });
});
