import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { engineJsonSchema, formatEngineFileProblem, loadEngineFiles } from '#core/catalog/catalog.ts';

const engines = new URL('../../../engines/', import.meta.url).pathname;

function yamlFiles(folder: string): string[] {
  return readdirSync(folder)
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => folder + name);
}

describe('the engine files that come with Headgate', () => {
  it('have a JSON Schema that matches the validation', () => {
    const committed: unknown = JSON.parse(readFileSync(`${engines}engine.schema.json`, 'utf8'));
    expect(
      committed,
      `out of date: node -e "import('#core/catalog/catalog.ts').then((c) => process.stdout.write(c.engineJsonSchema()))" > engines/engine.schema.json`,
    ).toEqual(JSON.parse(engineJsonSchema()));
  });

  it.each([engines, `${engines}examples/`])('are valid in %s', (folder) => {
    const result = loadEngineFiles(folder);
    expect(result.ok ? [] : result.problems.map(formatEngineFileProblem)).toEqual([]);
    expect(result.ok && result.engines.length > 0).toBe(true);
  });

  it('name the schema on their first line, so that editors complete them', () => {
    const files = [...yamlFiles(engines), ...yamlFiles(`${engines}examples/`)];
    expect(files.length).toBeGreaterThan(2);
    for (const file of files) {
      const schema = file.includes('/examples/') ? '../engine.schema.json' : './engine.schema.json';
      const [firstLine] = readFileSync(file, 'utf8').split('\n');
      expect(firstLine, file).toBe(`# yaml-language-server: $schema=${schema}`);
    }
  });
});
