import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { decodeDefinition, encodeDefinition, loadEngineFiles } from '#core/catalog/catalog.ts';
import { containerDefinition } from '#test/fleet/container-engines.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';

const engines = new URL('../../../engines/', import.meta.url).pathname;
const definition = containerDefinition('chat');

function load(folder: string) {
  const loaded = loadEngineFiles(folder, { env: { TEST_SECRET: 'the value of a secret' } });
  if (!loaded.ok) throw new Error(`The engine files are not valid: ${JSON.stringify(loaded.problems)}`);
  return loaded.engines;
}

const shipped = () => [engines, `${engines}examples/`].flatMap(load);

describe('a stored definition', () => {
  it.each([
    ['no JSON', '{'],
    ['no object', 'null'],
    ['a definition that lacks a field', JSON.stringify({ ...definition, kind: undefined })],
    ['a driver that is not known', JSON.stringify({ ...definition, driver: { ...definition.driver, type: 'other' } })],
    [
      'a price that is a number',
      JSON.stringify({
        ...definition,
        pricing: { inputPerMTokMicroUsd: 1, cachedInputPerMTokMicroUsd: 1, outputPerMTokMicroUsd: 1 },
      }),
    ],
    [
      'one that was kept with the Docker socket',
      encodeDefinition(
        containerDefinition('chat', { volumes: [{ source: '/var/run/docker.sock', target: '/x', readOnly: true }] }),
      ),
    ],
    [
      'one that was kept with docker’s own options',
      encodeDefinition(containerDefinition('chat', { args: ['acme/chat', '--privileged'] })),
    ],
  ])('is not read from %s', (_, text) => {
    expect(decodeDefinition(text)).toBeNull();
  });

  it('contains references to secrets, never their values', () => {
    const folder = mkdtempSync(join(tmpdir(), 'hg-stored-'));
    const common = ['version: 1', 'name: A', 'hugging_face_id: acme/a', 'task_type: chat', 'context_length: 8192'];
    const runs = {
      process: ['driver: process', 'command: [vllm, serve, acme/a]', 'env: { HF_TOKEN: "${TEST_SECRET}" }'],
      docker: ['driver: docker', 'image: "acme/a:1"', 'env: { HF_TOKEN: "${TEST_SECRET}" }'],
      external: ['driver: external', 'url: "http://engine:8000"', 'api_key_env: TEST_SECRET'],
    };
    for (const [id, lines] of Object.entries(runs)) {
      const named = common.map((line) => line.replace(/(name: |acme\/)[Aa]$/, `$1${id}`));
      writeFileSync(join(folder, `${id}.yaml`), [...named, `id: ${id}`, ...lines].join('\n'));
    }
    const texts = load(folder).map(encodeDefinition);
    rmSync(folder, { recursive: true });
    expect(texts.filter((text) => text.includes('TEST_SECRET'))).toHaveLength(3);
    expect(texts.filter((text) => text.includes('the value of a secret'))).toEqual([]);
  });

  it('gets default resources for a process that was stored before those fields existed', () => {
    const engine = engineDefinition();
    const { driver } = engine;
    if (driver.type !== 'process') throw new Error('a process was expected');
    const { memoryBytes, gpus, group, pinned, ...before } = driver;
    expect(decodeDefinition(JSON.stringify({ ...engine, driver: before }))).toEqual(engine);
    expect([memoryBytes, gpus, group, pinned]).toEqual([null, null, null, false]);
  });

  it.each(shipped().map((engine) => [engine.id, engine] as const))('reads back %s unchanged', (_, engine) => {
    const text = encodeDefinition(engine);
    const decoded = decodeDefinition(text);
    expect(decoded).toEqual(engine);
    // Hashes of specs are made over keys in their order.
    expect(decoded === null ? null : encodeDefinition(decoded)).toBe(text);
  });

  it('gets defaults for fields that its version did not have', () => {
    const { mediaMax: _media, structuredOutputs: _outputs, shareCache: _share, ...older } = definition;
    expect(decodeDefinition(JSON.stringify(older))).toEqual(definition);
  });

  it('keeps large prices exact, and canaries, volumes and any text unchanged', () => {
    const price = 9_007_199_254_740_993n;
    const pricing = { inputPerMTokMicroUsd: price, cachedInputPerMTokMicroUsd: 0n, outputPerMTokMicroUsd: price };
    const canary = { route: 'completions', body: { prompt: 'a\0\ud800', stop: [1, null] }, contains: null } as const;
    const volumes = [{ source: 'cache', target: '/c', readOnly: true }];
    const full = containerDefinition('chat', { canaries: [canary], volumes, env: { Z: '1', A: '"' } }, { pricing });
    expect(decodeDefinition(encodeDefinition(full))).toEqual(full);
  });
});
