import { globSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { auditActions } from '#edge/portal/people/audit-words.ts';

const root = new URL('../../..', import.meta.url).pathname;

/** Returns the audit actions that a file names as `action: 'a.b'`, or as a prefix with the words of its other actions. */
function actionsOf(text: string): string[] {
  const lines = text.split('\n').filter((line) => /\baction\b/i.test(line));
  const words = lines.flatMap((line) => [...line.matchAll(/'([a-z_]+(?:\.[a-z_]+)?)'/g)].map(([, word]) => word ?? ''));
  const prefixes = [...text.matchAll(/action: `([a-z_]+)\.\$\{action\}`/g)].map(([, prefix]) => prefix ?? '');
  const single = words.filter((word) => !word.includes('.'));
  return [
    ...words.filter((word) => word.includes('.')),
    ...prefixes.flatMap((prefix) => single.map((word) => `${prefix}.${word}`)),
  ];
}

it('has words for every action that a room records', () => {
  const paths = globSync('src/{app,core}/**/*.ts', { cwd: root });
  const found = new Set(paths.flatMap((path) => actionsOf(readFileSync(`${root}${path}`, 'utf8'))));
  expect([...found]).toEqual(expect.arrayContaining(['cluster.moved', 'webhook.rotated', 'session.opened']));
  expect([...found].filter((action) => auditActions[action] === undefined)).toEqual([]);
});
