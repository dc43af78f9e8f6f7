import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Body, eventually, useInference } from '#test/inference/inference-gateway.ts';

/** Starts that download a model, and starts that write nothing. */

const folder = mkdtempSync(join(tmpdir(), 'hg-slow-starts-'));
const fileOf = (name: string): string => join(folder, name);
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const standin = `exec '${process.execPath}' engines/standin/standin.js "$@"`;

/** An engine that runs a shell script before the stand-in, whose arguments the script gets. */
function scriptedFile(id: string, script: string, lines: readonly string[]): string {
  const command = ['sh', '-c', script, 'sh', '--uds', '{socket}', '--max-model-len', '8192'];
  return [
    'version: 1',
    `id: ${id}`,
    `name: The ${id}`,
    `hugging_face_id: acme/${id}`,
    'task_type: chat',
    'context_length: 8192',
    'pricing: { input_per_million: 0.10, cached_input_per_million: 0.05, output_per_million: 0.40 }',
    'driver: process',
    'kind: vllm',
    `env: { HF_HOME: ${JSON.stringify(fileOf('hf'))} }`,
    `command: ${JSON.stringify(command)}`,
    ...lines,
    '',
  ].join('\n');
}

/** Hangs at its first start, and counts its starts in a file. */
const hangsOnce = (id: string, hangs: number): string =>
  `echo start >> '${fileOf(id)}'; [ $(wc -l < '${fileOf(id)}') -gt ${hangs} ] || exec sleep 100000; ${standin}`;

const bench = useInference(() => ({
  engines: {
    loading: scriptedFile('loading', `while [ ! -e '${fileOf('go')}' ]; do sleep 0.1; done; ${standin}`, [
      'stalled_seconds: 6',
    ]),
    once: scriptedFile('once', hangsOnce('once', 1), ['stalled_seconds: 1']),
    twice: scriptedFile('twice', hangsOnce('twice', 2), ['stalled_seconds: 1', 'start_timeout_seconds: 8']),
    chatty: scriptedFile(
      'chatty',
      `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do echo $i; sleep 0.7; done; ${hangsOnce('chatty', 0)}`,
      ['stalled_seconds: 5'],
    ),
  },
}));

const engine = async (id: string): Promise<Body> => (await bench.gateway.request(`/v1/admin/engines/${id}`)).json();

const startsOf = (id: string): number =>
  existsSync(fileOf(id)) ? readFileSync(fileOf(id), 'utf8').split('\n').length - 1 : 0;

function writeMiB(path: string, atBytes: number): void {
  const file = openSync(path, 'r+');
  writeSync(file, Buffer.alloc(2 ** 20, 7), 0, 2 ** 20, atBytes);
  closeSync(file);
}

describe('a model that downloads', () => {
  const blobs = join(folder, 'hf', 'hub', 'models--acme--loading', 'blobs');
  const unfinished = join(blobs, '0123abcd.incomplete');
  let sizeBytes = 4 * 2 ** 20;
  let growing: NodeJS.Timeout | null = null;

  beforeAll(() => {
    mkdirSync(blobs, { recursive: true });
    writeFileSync(join(blobs, 'ffff'), Buffer.alloc(2 ** 20, 1));
    writeFileSync(unfinished, '');
    // A file whose size is reserved first grows by its blocks.
    truncateSync(unfinished, 2 ** 40);
    growing = setInterval(() => {
      writeMiB(unfinished, sizeBytes);
      sizeBytes += 2 ** 20;
    }, 200);
  });
  afterAll(() => {
    if (growing !== null) clearInterval(growing);
  });

  it('shows how much and how fast, to operators and to clients that wait for a stream', async () => {
    const answer = bench.chat({ model: 'loading', stream: true });
    const text = /^downloading the model: [\d.]+ MiB, [\d.]+ [KM]iB\/s$/;
    const progress = await eventually(async () => {
      const [replica] = (await engine('loading')).replicas;
      return text.test(replica?.progress ?? '') ? replica.progress : null;
    });
    expect(progress).toMatch(text);
    const reader = (await answer).body?.pipeThrough(new TextDecoderStream()).getReader();
    let read = '';
    while (!read.includes('downloading')) read += (await reader?.read())?.value ?? '';
    expect(read).toMatch(/^: waiting for the model: downloading the model: [\d.]+ MiB, [\d.]+ [KM]iB\/s$/m);
    writeFileSync(fileOf('go'), '');
    for (;;) {
      const part = await reader?.read();
      if (part?.done !== false) break;
      read += part.value;
    }
    expect(read).toContain('data: [DONE]');
    expect((await engine('loading')).replicas[0].progress).toBeNull();
  });
});

describe('a start that writes no line and no byte', () => {
  it('is ended and repeated, and its request waits for the next start', async () => {
    const answer = bench.chat({ model: 'once' });
    const { state, last_failure: failure } = await eventually(async () => {
      const shown = await engine('once');
      return shown.last_failure === null ? null : shown;
    });
    expect(state).toBe('starting');
    expect(JSON.stringify(failure)).toContain('made no progress');
    expect((await answer).status).toBe(200);
    expect(startsOf('once')).toBe(2);
    expect(await engine('once')).toMatchObject({ state: 'ready', last_failure: null });
  });

  it('is ended once only: the next start has the time of any start', async () => {
    const answer = await bench.chat({ model: 'twice' });
    expect(answer.status).toBe(503);
    await eventually(async () => JSON.stringify(await engine('twice')).includes('did not become ready in time'));
    expect(startsOf('twice')).toBe(2);
  });
});

it('does not end a start that writes a line now and then', async () => {
  expect((await bench.chat({ model: 'chatty' })).status).toBe(200);
  expect(startsOf('chatty')).toBe(1);
});
