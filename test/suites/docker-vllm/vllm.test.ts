import { execFileSync } from 'node:child_process';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { beforeAll, expect, it } from 'vitest';
import { importImage } from '#test/docker-image.ts';
import { booksOf, figure, lostOf, until } from '#test/docker/checked-client.ts';
import { createFloor, dockerFile } from '#test/docker/docker-gateways.ts';

/**
 * A real vLLM in a container. It is not in the image, which is nearly empty: the folders of this machine that it needs
 * are its volumes.
 */
const { VLLM_BIN: program = '', VLLM_MODEL: model = '' } = process.env;
const image = 'headgate-test/vllm-cpu:v0.32.0';
const idleSeconds = 5;
const floor = createFloor();

beforeAll(async () => {
  const root = mkdtempSync(join(tmpdir(), 'headgate-vllm-image-'));
  try {
    for (const folder of ['files/tmp', 'files/root', 'files/etc']) mkdirSync(join(root, folder), { recursive: true });
    chmodSync(join(root, 'files/tmp'), 0o1777);
    writeFileSync(join(root, 'files/etc/passwd'), 'root:x:0:0:root:/root:/bin/bash\n');
    const tarPath = join(root, 'image.tar');
    execFileSync('tar', ['--create', '--file', tarPath, '--directory', join(root, 'files'), '.']);
    await importImage(floor.docker(), { name: image, tarPath, changes: ['ENV PATH=/usr/local/bin:/usr/bin:/bin'] });
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
});

/** Folders of vLLM: this machine's programs and libraries, its own folder, and the Python that made that. */
function volumes(): string[] {
  const folder = dirname(program);
  const [, home = '/usr/bin'] = /^home = (.*)$/m.exec(readFileSync(join(folder, 'venv/pyvenv.cfg'), 'utf8')) ?? [];
  const own = [folder, dirname(home), model].filter((path) => !path.startsWith('/usr/') && path !== '/usr');
  const apart = own.filter((path) => !own.some((other) => path.startsWith(`${other}/`)));
  const folders = readdirSync('/usr', { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const system = [
    ...folders.map(({ name }) => `/usr/${name}:/usr/${name}:ro`),
    ...['bin', 'lib', 'lib64'].map((name) => `/usr/${name}:/${name}:ro`),
  ];
  // It keeps caches in its own folder.
  return [...system, ...apart.map((path) => `${path}:${path}${path === folder ? '' : ':ro'}`)];
}

it("starts vLLM in a container for the first request, bills by vLLM's count, and stops it when idle", async (test) => {
  const size = ['--dtype', 'bfloat16', '--max-model-len', '2048', '--max-num-seqs', '8', '--enforce-eager'];
  const fields = {
    image,
    entrypoint: [program, 'serve'],
    args: [model, ...size],
    context_length: 2048,
    volumes: volumes(),
    env: { HOME: '/root', USER: 'root' },
    shm_size: '1gb',
    idle_seconds: idleSeconds,
    start_timeout_seconds: 900,
  };
  const { gateway, chat, engine, admin } = await floor.open({ engines: { real: dockerFile('real', { fields }) } });
  const question = {
    messages: [{ role: 'user', content: 'What is the capital of France?' }],
    temperature: 0,
    max_tokens: 16,
    stream: true,
    stream_options: { include_usage: true },
  };
  const first = await chat('real', question);
  const { data: log } = await admin('GET', '/v1/admin/engines/real/logs?tail=20');
  expect(lostOf([first]), JSON.stringify(log)).toEqual([]);
  // The words that a small model finds first differ between processors.
  expect(first.text).toMatch(/"content":"[^"]/);
  expect(first.outputTokens).toBeGreaterThan(0);
  const books = await until('its record', async () => {
    const found = await booksOf(gateway, 'real');
    return found.requests === 1 && found;
  });
  expect(books).toMatchObject({ completed: 1, outputTokens: first.outputTokens });
  const started = floor.events('real').find(({ action }) => action === 'start')?.atMs ?? Number.NaN;
  await figure(test, 'vLLM on a CPU: ms from request to container start', started - first.sentAtMs);
  await figure(test, 'vLLM on a CPU: ms from request to first token, cold', first.firstTokenMs ?? Number.NaN);
  const warm = await chat('real', question);
  await figure(test, 'vLLM on a CPU: ms from request to first token, warm', warm.firstTokenMs ?? Number.NaN);
  await until('no container, no network', async () => {
    return (await floor.containers('real')).length === 0 && (await floor.networks('real')).length === 0;
  });
  expect(await engine('real')).toMatchObject({ state: 'stopped', last_failure: null });
  // It is asked to end before anything else; how long it takes for that on a busy machine is not the gateway's.
  const [asked] = floor.events('real').filter(({ action }) => action === 'kill');
  expect(asked?.signal).toBe('15');
  expect(floor.events('real').filter(({ action }) => action === 'die')).toHaveLength(1);
});
