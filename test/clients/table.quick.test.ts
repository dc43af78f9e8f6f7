import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { caseNames, type Client, clients } from './list.ts';
import { failuresOf, type Outcome, readResults, renderTable, replaceTable, tableOf } from './table.ts';

const client: Client = {
  registry: 'npm',
  folder: 'one',
  shown: ['one', '@two/three'],
  script: 'one.js',
  cases: ['chat', 'tools', 'wrong key'],
};
const results = { chat: 'ok', tools: `a|b\n${'x'.repeat(80)}`, 'wrong key': 'ok' };
const outcomes: readonly Outcome[] = [{ client, versions: ['1.0.0', '2.0.0'], results }];
const chapter = readFileSync(new URL('../../src/edge/inference/clients.md', import.meta.url), 'utf8');

describe('the table of clients', () => {
  it('has one row per client, and shortens failures', () => {
    const [head, line, row, ...more] = renderTable(outcomes).split('\n');
    expect([head, line?.split('|').length, more]).toEqual([
      `| client | version | ${caseNames.join(' | ')} |`,
      caseNames.length + 4,
      [],
    ]);
    expect(row).toBe(
      `| \`one\`, \`@two/three\` (npm) | 1.0.0, 2.0.0 |  | ok |  | a\\|b ${'x'.repeat(56)}… |${'  |'.repeat(6)} ok |`,
    );
  });

  it('lists failures in full', () => {
    expect(failuresOf(outcomes)).toEqual([`one, tools: a|b ${'x'.repeat(80)}`]);
  });

  it('replaces only the table of a chapter, and rejects a chapter without a place for it', () => {
    const replaced = replaceTable(chapter, '| new |');
    expect(tableOf(replaced)).toBe('| new |');
    expect(replaceTable(replaced, tableOf(chapter))).toBe(chapter);
    expect(() => replaceTable('# Clients', '| new |')).toThrow('has no line');
  });

  it('in the chapter has the clients and cases of the list, without a failure', () => {
    const rows = tableOf(chapter)
      .split('\n')
      .map((row) => row.split('|').map((text) => text.trim()));
    const versions = rows.slice(2).map((cells) => (cells[2] ?? '').split(', '));
    const every = clients.map((one, at) => ({
      client: one,
      versions: versions[at] ?? [],
      results: Object.fromEntries(one.cases.map((name) => [name, 'ok'])),
    }));
    expect(tableOf(chapter)).toBe(renderTable(every));
    for (const [at, { shown }] of clients.entries()) expect(versions[at]).toHaveLength(shown.length);
  });
});

describe('the results of a script', () => {
  it('are its lines of JSON; a case without one failed', () => {
    const printed =
      'a warning\n{"case":"chat","result":"ok"}\n{"case": "tools", "result": "Error: \\"no\\""}\n{"case":1}\n';
    expect(readResults(client, printed, 'code 1')).toEqual({
      chat: 'ok',
      tools: 'Error: "no"',
      'wrong key': 'no result: code 1',
    });
  });
});

describe('the list of clients', () => {
  it('names every script, each once', () => {
    const shared = ['cases.js', 'cases.py', 'ai-sdk.js'];
    const scripts = readdirSync(new URL('scripts/', import.meta.url)).filter((name) => /\.(?:js|py)$/.test(name));
    expect([...clients.map(({ script }) => script), ...shared].toSorted()).toEqual(scripts.toSorted());
  });
});
