/**
 * Backups of the database without PostgreSQL's own programs, which the built-in PostgreSQL lacks: all rows as of one
 * moment, to be loaded into any PostgreSQL that Headgate can use.
 */

export { BackupError } from './backup-error.ts';
export type { BackupContent, BackupHead } from './format.ts';
export { checkBackup, loadBackup, type LoadOptions } from './load.ts';
export { type BackupMade, writeBackup, type WriteOptions } from './write.ts';
