import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { formatEngineFileProblem, loadEngineFiles } from '#core/catalog/catalog.ts';

/** Resources in files of processes. */

let root: string;
let folder: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'hg-room-'));
  folder = join(root, 'engines');
  mkdirSync(folder);
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function write(id: string, ...lines: string[]): void {
  const all = [
    'version: 1',
    `id: ${id}`,
    `name: The ${id}`,
    `hugging_face_id: acme/${id}`,
    'task_type: chat',
    'context_length: 4096',
    'driver: process',
    ...(lines.some((line) => line.startsWith('command')) ? [] : ['command: [serve-it, "{socket}"]']),
    ...lines,
  ];
  writeFileSync(join(folder, `${id}.yaml`), `${all.join('\n')}\n`);
}

function problems(): string[] {
  const result = loadEngineFiles(folder);
  return result.ok ? [] : result.problems.map(formatEngineFileProblem);
}

function driverOf(id: string) {
  const result = loadEngineFiles(folder);
  if (!result.ok) throw new Error(problems().join('\n'));
  return result.engines.find((engine) => engine.id === id)?.driver;
}

describe('process resource validation', () => {
  it('can run several processes with replicas', () => {
    write('chat', 'replicas: {min: 1, max: 3}', 'min_up_seconds: 20');
    expect(driverOf('chat')).toMatchObject({ replicas: { min: 1, max: 3 }, upMinMs: 20_000 });
  });

  it.each([
    ['memory_gib: 0', 'memory_gib: must be at least 0.001'],
    ['memory_gib: 16gb', 'memory_gib: expected number'],
    ['gpus: 1', 'gpus: expected object'],
    ['gpus: {count: 0}', 'gpus.count: must be at least 1'],
    ['group: large', 'group: expected a group such as {name: large}'],
    ['group: {}', 'group.name: this field is missing'],
    ['group: {name: ""}', 'group.name: must not be empty'],
    ['group: {name: large, single: true}', 'group.single: unknown field'],
    ['group: {name: large, swap: "no"}', 'group.swap: expected boolean'],
    ['pinned: "yes"', 'pinned: expected boolean'],
  ])('rejects %s', (line, problem) => {
    write('a', line);
    expect(problems()).toEqual([`engines/a.yaml:9: ${problem}`]);
  });

  it('rejects CUDA_VISIBLE_DEVICES together with gpus', () => {
    write('a', 'gpus: {count: 1}', 'env: {CUDA_VISIBLE_DEVICES: "0"}');
    expect(problems()).toEqual([
      'engines/a.yaml:10: env.CUDA_VISIBLE_DEVICES: remove it; Headgate assigns devices to each replica (see gpus)',
    ]);
    write('a', 'env: {CUDA_VISIBLE_DEVICES: "0"}');
    expect(problems()).toEqual([]);
  });

  it('rejects a vLLM command that does not use all of its GPUs', () => {
    write('a', 'command: [vllm, serve, m]', 'gpus: {count: 2}');
    expect(problems()).toEqual([
      'engines/a.yaml:9: gpus.count: the parallel sizes multiply to 1, but gpus.count is 2: make them equal',
    ]);
    write('a', 'command: [vllm, serve, m, --tensor-parallel-size, "4"]', 'gpus: {count: 2}');
    expect(problems()).toEqual([
      'engines/a.yaml:8: command[3]: the parallel sizes multiply to 4, but gpus.count is 2: make them equal',
    ]);
    write('a', 'command: [vllm, serve, m, -tp, "2"]', 'gpus: {count: 2}');
    expect(problems()).toEqual([]);
  });

  it('rejects files that define one group differently', () => {
    write('a', 'group: {name: g, exclusive: true}');
    write('b', 'group: {name: g}');
    write('c', 'group: {name: other}');
    expect(problems()).toEqual([
      'engines/b.yaml:9: group.exclusive: engines/a.yaml sets exclusive: true for the group g; use the same value',
    ]);
  });

  it('rejects an engine that always runs in a group that runs one engine at a time', () => {
    write('a', 'group: {name: g}', 'replicas: {min: 1, max: 1}');
    write('b', 'group: {name: g}');
    expect(problems()).toEqual([
      'engines/a.yaml:10: replicas.min: this engine is always running, so no other engine of the group g could start',
    ]);
    write('a', 'group: {name: g}', 'pinned: true');
    expect(problems()).toEqual([
      'engines/a.yaml:10: pinned: this engine is always running, so no other engine of the group g could start',
    ]);
    write('b', 'group: {name: g}', 'enabled: false');
    expect(problems()).toEqual([]);
    write('a', 'group: {name: g, swap: false}', 'pinned: true');
    write('b', 'group: {name: g, swap: false}');
    expect(problems()).toEqual([]);
  });
});

describe('process resources', () => {
  it('are empty when the engine file does not set them', () => {
    write('a');
    expect(driverOf('a')).toMatchObject({ memoryBytes: null, gpus: null, group: null, pinned: false });
  });

  it('contain memory, GPUs, the group with its defaults, and pinned', () => {
    write(
      'a',
      'memory_gib: 1.5',
      'gpus: {count: 2, memory_gib: 80, profile: H100}',
      'group: {name: g}',
      'pinned: true',
    );
    expect(driverOf('a')).toMatchObject({
      memoryBytes: 1.5 * 2 ** 30,
      gpus: { count: 2, memoryBytesMin: 80 * 2 ** 30, profile: 'H100' },
      group: { name: 'g', swap: true, exclusive: false, persistent: false },
      pinned: true,
    });
  });
});
