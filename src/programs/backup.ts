import { basename, dirname } from 'node:path';
import { BackupError, writeBackup } from '#base/backup/backup.ts';
import { listSpooled, spoolFoldersOf } from '#base/spool.ts';
import { linkTables } from '#core/accounts/accounts.ts';
import { recordBackup } from '#core/backups/backups.ts';
import { readNamespace } from '#core/gateways/gateways.ts';
import { countActiveRuns } from '#core/runs/runs.ts';
import { type KeyState, readKeyState, storeCopies } from '#core/secrets/secrets.ts';
import { sessionTables } from '#core/sessions/sessions.ts';
import { type CommandContext, exitCodes, FailedError } from '#edge/cli/cli.ts';
import { type GatewayDatabase, withGatewayDatabase } from './books-database.ts';

/** Tables of sessions and open links, left out of backups: a restore would bring back ended sessions and links. */
export const leftOut: readonly string[] = [...sessionTables, ...linkTables];

/** Runs `headgate backup`: writes all that must not be lost to a file, while gateways run. */
export function runBackup(context: CommandContext): Promise<number> {
  return failing(async () => {
    const path = context.words[0] ?? '';
    await withGatewayDatabase({ whileRunning: true }, async (database) => {
      const { db, dataDir } = database;
      const key = await carryKey(database);
      const origin = await readNamespace(db);
      const made = await writeBackup({ db, path, origin, leaveOut: leftOut });
      await recordBackup(db.sql, basename(path), made.madeAt);
      const spooled = (await Promise.all(spoolFoldersOf(dataDir, origin).map(listSpooled))).flat();
      const running = await countActiveRuns(db);
      if (context.json) {
        const { bytes, rows, tables } = made;
        const body = {
          object: 'backup',
          file: path,
          bytes,
          rows,
          tables,
          spooled_files: spooled.length,
          running_runs: running,
          platform_key: key === null ? null : { id: key.id, in_backup: key.isCarried },
        };
        context.out(`${JSON.stringify(body, null, 2)}\n`);
        return;
      }
      context.out(
        `${path}: ${made.rows} rows of ${made.tables} tables, ${made.bytes} bytes. Check the file at any time: ` +
          `headgate restore --check ${path}\n`,
      );
      if (key !== null) (key.isCarried ? context.out : context.err)(keyNote(key, database));
      if (spooled.length > 0) context.err(spooledNote(spooled));
      if (running > 0) context.err(runningNote(running));
    });
    return exitCodes.ok;
  });
}

/** Stores a sealed copy of the platform key in the database, if a passphrase is set, so that the backup has the key. */
async function carryKey({ db, ring, backupPassphrase }: GatewayDatabase): Promise<KeyState | null> {
  const key = await readKeyState(db.sql, ring);
  if (key === null || key.isCarried || !key.isHere || backupPassphrase === null) return key;
  await storeCopies(db.sql, ring, backupPassphrase);
  return readKeyState(db.sql, ring);
}

function keyNote({ id, isCarried }: KeyState, { ring }: GatewayDatabase): string {
  if (isCarried) {
    return (
      `The backup contains the platform key ${id}, encrypted with HEADGATE_BACKUP_PASSPHRASE. Store the passphrase apart ` +
      'from the backup: without the passphrase, data that the key encrypts is unreadable.\n'
    );
  }
  return (
    `headgate: the platform key ${id} is not in the backup. Without the key, data that it encrypts is unreadable: access ` +
    `identities, inputs and states of runs, secrets of webhooks. Copy ${ring.place} to another machine, apart from the ` +
    'backup, or set HEADGATE_BACKUP_PASSPHRASE and make a new backup.\n'
  );
}

/** Runs a command on backups. @throws FailedError in place of BackupError, with its message */
export async function failing(run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof BackupError) throw new FailedError(error.message);
    throw error;
  }
}

/** Warns of active runs. Their work folders contain keys in clear, so no backup contains the folders. */
function runningNote(runs: number): string {
  return (
    `headgate: ${runs} runs of stacks are active: resources that they created in the last half minute may be missing from ` +
    'the backup. If the backup will replace this database, wait until the runs have ended, then make a new backup.\n'
  );
}

function spooledNote(files: readonly string[]): string {
  const folders = [...new Set(files.map((file) => dirname(dirname(file))))].join(' and ');
  return (
    `headgate: ${files.length} files of usage in ${folders} are not in the backup, because PostgreSQL has not accepted them ` +
    'yet. A gateway on this folder posts them. If the backup will replace this database, run a gateway until ' +
    'headgate_books_spooled_records is 0, stop it, then make a new backup.\n'
  );
}
