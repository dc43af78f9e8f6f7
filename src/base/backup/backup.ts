/**
 * Backups of the database that need no program of PostgreSQL's, which the built-in one does not bring: all rows as they
 * are at one moment, to be put into any PostgreSQL that Headgate can use.
 */

export { BackupError } from './backup-error.ts';
export type { BackupContent, BackupHead } from './format.ts';
export { checkBackup, loadBackup, type LoadOptions } from './load.ts';
export { type BackupMade, writeBackup, type WriteOptions } from './write.ts';
