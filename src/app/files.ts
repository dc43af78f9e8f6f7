import type { Clock } from '#base/clock.ts';
import type { BatchesConfig } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import type { Audit } from '#core/audit/audit.ts';
import { type Batches, createBatches } from '#core/batches/batches.ts';
import { createFiles, type Files } from '#core/files/files.ts';
import type { Part } from './lifecycle.ts';

export interface FilesParts {
  readonly settings: BatchesConfig;
  readonly db: Db;
  readonly clock: Clock;
  readonly audit: Audit;
}

/** Files and batches of organizations. Each is deleted after some time. */
export interface OpenedFiles {
  readonly files: Files;
  readonly batches: Batches;
  readonly part: Part;
}

const cleaningMs = 60_000;

export function openFiles({ settings, db, clock, audit }: FilesParts): OpenedFiles {
  const { fileAgeMaxMs, filesBytesMax } = settings;
  const files = createFiles({ db, clock, audit, ageMaxMs: fileAgeMaxMs, organizationBytesMax: filesBytesMax });
  const batches = createBatches({ db, clock, audit, files, fileAgeMaxMs });
  const part: Part = {
    name: 'files',
    jobs: [
      { name: 'delete old files', everyMs: cleaningMs, where: 'one', run: () => files.deleteOld() },
      { name: 'delete old batches', everyMs: cleaningMs, where: 'one', run: () => batches.deleteOld() },
    ],
  };
  return { files, batches, part };
}
