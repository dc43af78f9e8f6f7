import { readFileSync } from 'node:fs';

/** The version of this program, as its package says. */
export function readVersion(): string {
  const text = readFileSync(new URL('../../../package.json', import.meta.url), 'utf8');
  const { version } = JSON.parse(text) as { version?: unknown };
  return typeof version === 'string' ? version : '';
}
