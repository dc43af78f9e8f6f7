import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { addEngineTexts, clusterEngineText, loadEngineFiles, type ReadFile } from '#core/catalog/catalog.ts';

/** Engines that runs declare, beside engine files. */

const engine = { id: 'of-run', task_type: 'chat', context_length: 10, port: 8000 };
const textOf = (declared: object) =>
  clusterEngineText({
    file: 'run_1 (stack vllm)',
    engine: declared,
    nodes: [{ name: 'n0', address: '10.0.0.1' }],
    node: '',
    apiKeyEnv: 'KEY',
    apiKey: 'secret',
  });

function filesOf(files: Readonly<Record<string, string>>): readonly ReadFile[] {
  const folder = mkdtempSync(join(tmpdir(), 'hg-catalog-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  for (const [id, more] of Object.entries(files)) {
    const text = `{ version: 1, id: ${id}, name: ${id}, task_type: chat, context_length: 10, driver: external, url: "http://${id}.example"${more} }`;
    writeFileSync(join(folder, `${id}.yaml`), text);
  }
  const read = loadEngineFiles(folder);
  if (!read.ok) throw new Error(JSON.stringify(read.problems));
  return read.files;
}

it.each(['chat', 'embedding'])('an engine of a run (%s) takes no fallback from the files', (task_type) => {
  const files = filesOf({ a: ', hugging_face_id: Acme/One', b: ', fallbacks: [Acme/One]' });
  const all = addEngineTexts(files, [textOf({ ...engine, task_type, hugging_face_id: 'Acme/One' })]);
  if (!all.ok) throw new Error(JSON.stringify(all.problems));
  expect(all.engines.map(({ id, fallbacks }) => [id, fallbacks])).toEqual([
    ['a', []],
    ['b', ['a']],
    ['of-run', []],
  ]);
});

it.each([8000, '8000'])('an engine of a run has the port %j', (port) => {
  expect(textOf({ ...engine, port }).problem).toBeNull();
});

it.each([true, [8000], '0x1f', '', 0, 65_536, 1.5, null, {}])(
  'an engine of a run is left out with the port %j',
  (port) => {
    expect(textOf({ ...engine, port }).problem).toContain('a port from 1 to 65535');
  },
);
