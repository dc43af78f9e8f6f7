import type { TestTagDefinition } from 'vitest/config';
import { findProgram, postgresBin } from './compose.ts';

/** Needs of single tests that not every machine meets; null where this one does. A test names its need by a tag. */
const lacking: Readonly<Record<string, string | null>> = {
  root: process.geteuid?.() === 0 ? null : 'only root can run it',
  linux: process.platform === 'linux' ? null : 'only Linux can run it',
  postgresql: postgresBin() === null ? 'there is no PostgreSQL server under /usr/lib/postgresql' : null,
  systemd: findProgram('systemd-analyze', process.env) === null ? 'there is no systemd-analyze on PATH' : null,
};

/** Tags by which a test is left out where the machine lacks what it needs. */
export const tags: TestTagDefinition[] = Object.entries(lacking).map(([name, why]) => ({ name, skip: why !== null }));

/** @returns why a test with these tags is left out; null where nothing that they name is lacking */
export function whyLeftOut(names: readonly string[]): string | null {
  return names.map((name) => lacking[name] ?? null).find((why) => why !== null) ?? null;
}
