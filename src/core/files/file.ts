import type { files } from './schema.ts';

export type FilePurpose = 'batch' | 'batch_output';

/** A file that is whole. Ids are UUIDs, times milliseconds since the Unix epoch. */
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

/** The files that a caller may see: `keyIds` null is any of the organization. */
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
  /** The last one of the page before. */
  readonly after: string | null;
  readonly limit: number;
}

export interface NewFile {
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string | null;
  readonly purpose: FilePurpose;
  /** Null: as long as the operator keeps files, which bounds it in any case. */
  readonly keepSeconds: number | null;
  /** What it may come to. */
  readonly bytesMax: number;
  /** Nobody has said that it will come to that: it may be less where its organization has no room for it. */
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
