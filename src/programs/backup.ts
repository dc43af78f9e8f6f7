import { basename, dirname } from 'node:path';
import { BackupError, writeBackup } from '#base/backup/backup.ts';
import { listSpooled, spoolFoldersOf } from '#base/spool.ts';
import { linkTables } from '#core/accounts/accounts.ts';
import { recordBackup } from '#core/backups/backups.ts';
import { readNamespace } from '#core/gateways/gateways.ts';
import { countActiveRuns } from '#core/runs/runs.ts';
import { sessionTables } from '#core/sessions/sessions.ts';
import { type Command, exitCodes, FailedError } from '#edge/cli/cli.ts';
import { withBooksDatabase } from './books-database.ts';

/** Who is signed in, and links that are open: a copy would bring back what has ended since. */
export const leftOut: readonly string[] = [...sessionTables, ...linkTables];

/** `headgate backup`: all that must not be lost, in a file, while gateways go on. */
export const backupCommand: Command = {
  name: 'backup',
  usage: 'FILE',
  summary:
    'Write all that the database holds, but who is signed in and links that are open, to a new file: as it is at one ' +
    'moment, also while gateways run; the database ' +
    'of DATABASE_URL, or the built-in one of HEADGATE_DATA_DIR.',
  words: { min: 1, max: 1 },
  options: {},
  run: (context) =>
    failing(async () => {
      const path = context.words[0] ?? '';
      await withBooksDatabase({ whileRunning: true }, async ({ db, dataDir }) => {
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
          };
          context.out(`${JSON.stringify(body, null, 2)}\n`);
          return;
        }
        context.out(
          `${path}: ${made.rows} rows of ${made.tables} tables, ${made.bytes} bytes. It can be checked at any time: ` +
            `headgate restore --check ${path}\n`,
        );
        if (spooled.length > 0) context.err(spooledNote(spooled));
        if (running > 0) context.err(runningNote(running));
      });
      return exitCodes.ok;
    }),
};

/** @throws FailedError for what a backup says of itself */
export async function failing(run: () => Promise<number>): Promise<number> {
  try {
    return await run();
  } catch (error) {
    if (error instanceof BackupError) throw new FailedError(error.message);
    throw error;
  }
}

/** Work folders hold keys in clear: they go into no file. */
function runningNote(runs: number): string {
  return (
    `headgate: ${runs} runs of stacks are going on: what they have made in the last half minute may not be in it. Before ` +
    'this database is given up for its copy, wait until they have ended, and make the backup then.\n'
  );
}

function spooledNote(files: readonly string[]): string {
  const folders = [...new Set(files.map((file) => dirname(dirname(file))))].join(' and ');
  return (
    `headgate: ${files.length} files of usage in ${folders} are not in it, because PostgreSQL has not taken them yet. A gateway ` +
    'on this folder books them. Before this database is given up for its copy, let one run until ' +
    'headgate_books_spooled_records is 0, stop it, and make the backup then.\n'
  );
}
