import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import {
  checkEngineText,
  decodeDefinition,
  encodeDefinition,
  type EngineDefinition,
  formatEngineFileProblem,
  loadEngineFileList,
  loadEngineFiles,
} from '#core/catalog/catalog.ts';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'hg-catalog-'));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const file = (id: string, more = '', task = 'chat'): string => `version: 1
id: ${id}
name: The ${id}
hugging_face_id: Acme/${id}
aliases: [${id}-alias]
task_type: ${task}
context_length: 4096
driver: external
url: https://${id}.example
${more}`;

function write(files: Readonly<Record<string, string>>): void {
  for (const [name, text] of Object.entries(files)) writeFileSync(join(folder, `${name}.yaml`), text);
}

function problems(): string[] {
  const result = loadEngineFiles(folder);
  return result.ok ? [] : result.problems.map(formatEngineFileProblem).map((text) => text.replace(/^[^/]*\//, ''));
}

function load(): ReadonlyMap<string, EngineDefinition> {
  const result = loadEngineFiles(folder);
  if (!result.ok) throw new Error(result.problems.map(formatEngineFileProblem).join('\n'));
  return new Map(result.engines.map((engine) => [engine.id, engine]));
}

const adapters = (fallbacks: string): string => `kind: vllm\nlora:\n  - id: tuned\n    fallbacks: [${fallbacks}]\n`;

describe('fallback validation', () => {
  it.each([
    ['nowhere', 'no engine file has a model "nowhere"'],
    ['a', 'a model cannot be its own fallback'],
    ['A-Alias', 'a model cannot be its own fallback'],
    ['tuned', 'tuned is served by the same engine'],
    ['b, Acme/B', 'b is already listed'],
    ['vectors', 'vectors has task_type embedding and cannot serve chat requests'],
    ['sorter', 'sorter has task_type rerank'],
    ['plain', 'plain has task_type completion'],
    ['1, 2, 3, 4, 5, 6, 7, 8, 9', 'must not be longer than 8'],
    ['""', 'must not be empty'],
  ])('rejects the fallbacks %s', (names, message) => {
    write({
      a: file('a', `fallbacks: [${names}]\nkind: vllm\nlora: [{ id: tuned }]\n`),
      b: file('b'),
      vectors: file('vectors', '', 'embedding'),
      sorter: file('sorter', '', 'rerank'),
      plain: file('plain', '', 'completion'),
    });
    const found = problems().filter((problem) => problem.startsWith('a.yaml'));
    expect(found.join('\n')).toContain(message);
    expect(found[0]).toMatch(/^a\.yaml:10: fallbacks/);
  });

  it('rejects the fallbacks of an adapter at their own position', () => {
    write({ a: file('a', adapters('a, nowhere, tuned')), b: file('b') });
    expect(problems()).toEqual([
      expect.stringMatching(/^a\.yaml:13: lora\[0\]\.fallbacks\[0\]: a is served by the same engine/),
      expect.stringMatching(/^a\.yaml:13: lora\[0\]\.fallbacks\[1\]: no engine file has a model "nowhere"/),
      expect.stringMatching(/^a\.yaml:13: lora\[0\]\.fallbacks\[2\]: a model cannot be its own fallback/),
    ]);
  });
});

describe('fallbacks', () => {
  it('are empty by default, and an adapter does not inherit those of its base', () => {
    write({ a: file('a', `fallbacks: [b]\nkind: vllm\nlora: [{ id: tuned }]\n`), b: file('b') });
    expect(load().get('a')).toMatchObject({ fallbacks: ['b'], lora: [{ fallbacks: [] }] });
    expect(load().get('b')?.fallbacks).toEqual([]);
  });

  it('resolve any model name to its id, in file order, and can be mutual', () => {
    write({
      a: file('a', `fallbacks: [C-alias, the b, "eyes"]\n${adapters('ACME/C')}`),
      b: file('b', 'fallbacks: [a]\n'),
      c: file('c', 'fallbacks: [tuned]\n'),
      eyes: file('eyes', '', 'vision'),
      plain: file('plain', 'fallbacks: [a]\n', 'completion'),
      one: file('one', 'fallbacks: [two]\n', 'embedding'),
      two: file('two', 'fallbacks: [one]\n', 'embedding'),
    });
    const engines = load();
    expect(engines.get('a')).toMatchObject({ fallbacks: ['c', 'b', 'eyes'], lora: [{ fallbacks: ['c'] }] });
    expect(engines.get('c')?.fallbacks).toEqual(['tuned']);
    expect(engines.get('two')?.fallbacks).toEqual(['one']);
  });

  it('can name models of other files when one file is checked by itself', () => {
    write({ a: file('a', 'fallbacks: [elsewhere]\n') });
    expect(loadEngineFileList([join(folder, 'a.yaml')])).toMatchObject({ ok: true });
    expect(checkEngineText(file('a', 'fallbacks: [elsewhere]\n'), 'a.yaml')).toEqual([]);
    expect(problems()).toEqual([expect.stringContaining('no engine file has a model "elsewhere"')]);
  });

  it('are stored with a definition, and empty in one stored before fallbacks existed', () => {
    write({ a: file('a', 'fallbacks: [b]\n'), b: file('b') });
    const engine = load().get('a');
    if (engine === undefined) throw new Error('the file was not read');
    const text = encodeDefinition(engine);
    expect(decodeDefinition(text)).toEqual(engine);
    expect(decodeDefinition(text.replace('"fallbacks":["b"],', ''))).toEqual({ ...engine, fallbacks: [] });
  });
});
