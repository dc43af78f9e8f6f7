import { randomUUID } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { isUuid } from '#base/id.ts';

/** Returns the id of a gateway folder, equal for all its workers. */
export function readGatewayDirId(gatewayDir: string): string {
  return placeOf(gatewayDir, 0);
}

/**
 * Returns the id of a worker slot in a gateway folder. The id is stored in a file there, which is created if missing.
 * Only one process at a time has the slot.
 */
export function placeOf(gatewayDir: string, slot: number): string {
  const path = join(gatewayDir, slot === 0 ? 'gateway-id' : `gateway-id-${slot}`);
  try {
    const kept = readFileSync(path, 'utf8').trim();
    if (isUuid(kept)) return kept;
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ENOENT')) throw error;
  }
  const made = randomUUID();
  writeFileSync(path, `${made}\n`, { mode: 0o600 });
  return made;
}
