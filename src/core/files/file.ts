import type { files } from './schema.ts';

export type FilePurpose = 'batch' | 'batch_output';

/** A complete file. Ids are UUIDs, times milliseconds since the Unix epoch. */
export interface StoredFile {
  readonly id: string;
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string | null;
  readonly purpose: FilePurpose;
  readonly filename: string;
  readonly bytes: number;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

/** The files that a caller may see. `keyIds` null: files of all keys in the organization. */
export interface FileScope {
  readonly organizationId: string;
  readonly keyIds: readonly string[] | null;
}

export interface FileRef extends FileScope {
  readonly id: string;
}

export interface FileListing extends FileScope {
  readonly purpose: FilePurpose | null;
  readonly order: 'asc' | 'desc';
  /** Id of the last file of the previous page. */
  readonly after: string | null;
  readonly limit: number;
}

export interface NewFile {
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string | null;
  readonly purpose: FilePurpose;
  /** Null keeps the file as long as the operator's maximum, which always applies. */
  readonly keepSeconds: number | null;
  /** Maximum bytes of the file. */
  readonly bytesMax: number;
  /** True if `bytesMax` is a guess: the maximum may be lowered if the organization has less room. */
  readonly isGuess?: boolean;
}

export function toStoredFile(row: typeof files.$inferSelect): StoredFile {
  return {
    id: row.id,
    organizationId: row.organizationId,
    projectId: row.projectId,
    keyId: row.keyId,
    purpose: row.purpose,
    filename: row.filename,
    bytes: row.bytes,
    createdAtMs: row.createdAt.getTime(),
    expiresAtMs: row.expiresAt.getTime(),
  };
}
