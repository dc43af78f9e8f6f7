import { ConfigError, readClientConfig } from '#base/config.ts';
import { runCli } from '#edge/cli/cli.ts';
import { backupCommand } from './backup.ts';
import { doctorCommand } from './doctor.ts';
import { keysRecoverCommand } from './keys-recover.ts';
import { restoreCommand } from './restore.ts';
import { verifyBooksCommand } from './verify-books.ts';
import { verifyStatementCommand } from './verify-statement.ts';
import { welcomeCommand } from './welcome-command.ts';

/** The command `headgate`: what it prints and how it ends are its answer; everything else is in edge/cli. */
async function main(): Promise<void> {
  // A reader may close the pipe early: `headgate engines logs -f chat | head`.
  process.stdout.on('error', () => process.exit(0));
  try {
    process.exitCode = await runCli({
      args: process.argv.slice(2),
      config: readClientConfig(),
      commands: [
        doctorCommand,
        welcomeCommand,
        keysRecoverCommand,
        backupCommand,
        restoreCommand,
        verifyBooksCommand,
        verifyStatementCommand,
      ],
      out: (text) => void process.stdout.write(text),
      err: (text) => void process.stderr.write(text),
    });
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    process.stderr.write(`headgate: ${error.message}\n`);
    process.exitCode = 2;
  }
}

await main();
