import type { Command } from '#edge/cli/cli.ts';
import { backupCommand } from './backup.ts';
import { doctorCommand } from './doctor.ts';
import { keysRecoverCommand } from './keys-recover.ts';
import { restoreCommand } from './restore.ts';
import { verifyBooksCommand } from './verify-books.ts';
import { verifyStatementCommand } from './verify-statement.ts';
import { welcomeCommand } from './welcome-command.ts';

/** Commands that work on the machine itself, on the database or on files, and ask no gateway. */
export const machineCommands: readonly Command[] = [
  doctorCommand,
  welcomeCommand,
  keysRecoverCommand,
  backupCommand,
  restoreCommand,
  verifyBooksCommand,
  verifyStatementCommand,
];
