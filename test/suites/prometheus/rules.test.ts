import { execFileSync } from 'node:child_process';
import { globSync } from 'node:fs';
import { describe, expect, it } from 'vitest';

const compose = new URL('../../../compose/', import.meta.url).pathname;

function check(...args: readonly string[]): string {
  return execFileSync('promtool', ['check', ...args], { encoding: 'utf8' });
}

describe('promtool', () => {
  it('finds nothing wrong with the alert rules', () => {
    const rules = globSync('prometheus/rules/*.yml', { cwd: compose });
    expect(rules).not.toEqual([]);
    for (const rule of rules) expect(check('rules', `${compose}${rule}`)).toContain('SUCCESS');
  });

  it('finds nothing wrong with the configuration', () => {
    expect(check('config', '--syntax-only', `${compose}prometheus/prometheus.yml`)).toContain('SUCCESS');
  });
});
