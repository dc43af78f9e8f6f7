import type { ISql } from 'postgres';
import { type BackupContent, checkBackup, loadBackup } from '#base/backup/backup.ts';
import { listSpooled, moveSpooled, spoolFolderOf, spoolFoldersOf } from '#base/spool.ts';
import { noteRestore, readNamespace } from '#core/gateways/gateways.ts';
import { readKeyState } from '#core/secrets/secrets.ts';
import { type CommandContext, exitCodes, FailedError, textFlag, UsageError } from '#edge/cli/cli.ts';
import { failing, leftOut } from './backup.ts';
import { type GatewayDatabase, withGatewayDatabase } from './books-database.ts';
import type { Finding } from './doctor-checks.ts';
import { reportKey } from './platform-key-report.ts';
import { decidePending, type PendingChoice } from './restored-work.ts';

/** Runs `headgate restore`: loads a file of `headgate backup` into a database that no gateway uses. */
export function runRestore(context: CommandContext): Promise<number> {
  return failing(async () => {
    const path = context.words[0] ?? '';
    const spool = readSpool(context);
    const pending = readPending(context);
    const content = await checkBackup(path);
    if (context.flags['check'] === true) {
      context.out(context.json ? jsonText(path, content, false) : `${path} is complete: ${describe(content)}\n`);
      return exitCodes.ok;
    }
    const replace = context.flags['replace'] === true;
    const { variable, key } = await withGatewayDatabase({ make: true }, async (database) => {
      const moveSpool = await prepareSpool(database, content, spool);
      const beforeCommit = async (sql: ISql): Promise<void> => {
        await decidePending(sql, pending);
        await noteRestore(sql, content.head.made_at);
        await moveSpool();
      };
      await loadBackup({ db: database.db, path, content, replace, leaveOut: leftOut, beforeCommit });
      return { variable: database.variable, key: await findKeyProblem(database) };
    });
    context.out(context.json ? jsonText(path, content, true) : restoredText(path, content, variable));
    if (key !== null) context.err(`headgate: ${key.message}. ${key.next}.\n`);
    return exitCodes.ok;
  });
}

/** Returns null if this machine has the platform key of the restored database, or the database has used none. */
async function findKeyProblem({ db, ring, backupPassphrase }: GatewayDatabase): Promise<Finding | null> {
  const key = await readKeyState(db.sql, ring);
  if (key === null || key.isHere) return null;
  return reportKey(key, { place: ring.place, hasPassphrase: backupPassphrase !== null });
}

type SpoolChoice = 'book' | 'leave' | null;

function readSpool(context: CommandContext): SpoolChoice {
  const text = textFlag(context, 'spool');
  if (text === null || text === 'book' || text === 'leave') return text;
  throw new UsageError(`--spool ${text}: must be book or leave`);
}

function readPending(context: CommandContext): PendingChoice {
  const text = textFlag(context, 'pending');
  if (text === null || text === 'resume' || text === 'end') return text;
  throw new UsageError(`--pending ${text}: must be resume or end`);
}

/**
 * Prepares the move of spooled usage. Usage on disk belongs to the database that did not record it: the replaced
 * database, or the database of the backup. A record that the restored books have already is found by its id, and not
 * recorded again. The files are moved before the commit: after an interruption between the two, they lie in the folder
 * that a rerun and the next gateway read.
 * @returns a function to call before the backup is committed
 * @throws FailedError when there are such files and no choice
 */
async function prepareSpool(
  { db, dataDir }: GatewayDatabase,
  { head }: BackupContent,
  choice: SpoolChoice,
): Promise<() => Promise<void>> {
  const database = await readNamespace(db);
  const own = spoolFolderOf(dataDir, database);
  const folders = [...new Set([database, head.origin])].flatMap((name) => spoolFoldersOf(dataDir, name));
  const files = (await Promise.all(folders.map(listSpooled))).flat();
  if (files.length === 0 || choice === 'leave') return async () => undefined;
  if (choice === 'book') {
    return () =>
      moveSpooled(
        files.filter((file) => !file.startsWith(`${own}/`)),
        own,
      );
  }
  throw new FailedError(
    `${folders.join(' and ')} contain usage that the database had not accepted when its gateway stopped (${files.length} ` +
      'files). Start that gateway again to post the usage, then make a new backup; or use --spool book to post usage that ' +
      'the restored database lacks, or --spool leave to keep the files',
  );
}

const total = ({ tail }: BackupContent): number => Object.values(tail.rows).reduce((sum, rows) => sum + rows, 0);

function describe(content: BackupContent): string {
  const { made_at: madeAt, headgate_version: version, postgres_version: postgres } = content.head;
  const tables = Object.keys(content.tail.rows).length;
  return `${total(content)} rows of ${tables} tables, as they were at ${madeAt} (Headgate ${version}, PostgreSQL ${postgres})`;
}

function restoredText(path: string, content: BackupContent, variable: string): string {
  const redis =
    variable === 'DATABASE_URL'
      ? 'If gateways share a Redis, empty it before they start (redis-cli FLUSHALL): they then load balances from the restored database.\n'
      : '';
  return `${path} is restored: ${describe(content)}.\n${redis}Now start the gateway; "headgate verify-books" verifies the ledgers.\n`;
}

function jsonText(path: string, content: BackupContent, restored: boolean): string {
  const { made_at: madeAt, headgate_version: version, postgres_version: postgres } = content.head;
  const body = {
    object: restored ? 'restored_backup' : 'backup',
    file: path,
    made_at: madeAt,
    headgate_version: version,
    postgres_version: postgres,
    rows: content.tail.rows,
    sha256: content.tail.sha256,
  };
  return `${JSON.stringify(body, null, 2)}\n`;
}
