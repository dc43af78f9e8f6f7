import type { Command } from '#edge/cli/cli.ts';

/**
 * Commands that work on the machine, the database or files, and ask no gateway. Each command loads its code when it
 * runs: that code is most of a gateway, which other commands do not need.
 */
export const machineCommands: readonly Command[] = [
  {
    name: 'doctor',
    usage: '',
    summary:
      'Check the environment of a gateway, and show how to fix problems: configuration, PostgreSQL, backups, Redis, Docker, ' +
      'GPUs, engine files, clock, disk, terraform, platform key and gateways. It changes nothing.',
    words: { min: 0, max: 0 },
    options: {},
    run: async (context) => (await import('./doctor-report.ts')).runDoctor(context),
  },
  {
    name: 'welcome',
    usage: '',
    summary:
      'Create a sign-in link for the platform administrator: it works once, within ten minutes, and is stored in the ' +
      'database of DATABASE_URL or HEADGATE_DATA_DIR. The link leads to the gateway of HEADGATE_URL, else to the gateway ' +
      'that was started last on that data folder.',
    words: { min: 0, max: 0 },
    options: {},
    run: async (context) => (await import('./welcome-command.ts')).runWelcome(context),
  },
  {
    name: 'keys recover',
    usage: '[--revoke-others]',
    summary:
      'Create a new management key for the platform administrator: in the database of DATABASE_URL or HEADGATE_DATA_DIR, ' +
      'also while a gateway runs. --revoke-others revokes all other management keys of platform administrators.',
    words: { min: 0, max: 0 },
    options: {
      'revoke-others': { type: 'boolean', about: 'revoke all other management keys of platform administrators' },
    },
    run: async (context) => (await import('./keys-recover.ts')).runKeysRecover(context),
  },
  {
    name: 'backup',
    usage: 'FILE',
    summary:
      'Back up the database to a new file, also while gateways run: everything as of one moment, except sessions and open ' +
      'links. The database is that of DATABASE_URL, or the built-in database of HEADGATE_DATA_DIR.',
    words: { min: 1, max: 1 },
    options: {},
    run: async (context) => (await import('./backup.ts')).runBackup(context),
  },
  {
    name: 'restore',
    usage: 'FILE [--check] [--replace] [--spool book|leave] [--pending resume|end]',
    summary:
      'Restore a backup to the empty database of DATABASE_URL or HEADGATE_DATA_DIR, in one transaction. Stop all gateways ' +
      'first. --check only reads the file, --replace replaces existing data. --spool sets what happens to usage on this ' +
      'disk that is not in the database, --pending to unfinished batches, runs and alerts.',
    words: { min: 1, max: 1 },
    options: {
      check: { type: 'boolean', about: 'check that the file is complete, and change nothing' },
      replace: { type: 'boolean', about: 'delete the current data of the database' },
      spool: {
        type: 'string',
        about: 'usage on this disk that the restored database lacks: book charges it, leave keeps the files unchanged',
      },
      pending: {
        type: 'string',
        about: 'unfinished batches, runs and alerts: resume continues them, end cancels them',
      },
    },
    run: async (context) => (await import('./restore.ts')).runRestore(context),
  },
  {
    name: 'verify-books',
    usage: '[--organization ID] [--heads] [--expect HEADS.json]',
    summary:
      'Verify ledgers, sums and balances in the database of DATABASE_URL or HEADGATE_DATA_DIR. --heads prints the head of each ' +
      'ledger, the hash of its last entry: store the output outside the database. --expect checks that the ledgers continue ' +
      'from stored heads, which is the only way to detect a ledger that was replaced as a whole.',
    words: { min: 0, max: 0 },
    options: {
      organization: { type: 'string', about: 'only this organization: org_…' },
      heads: { type: 'boolean', about: 'print the heads of the ledgers as JSON, for --expect' },
      expect: {
        type: 'string',
        about: 'file with the output of an earlier --heads, from which the ledgers must continue',
      },
    },
    run: async (context) => (await import('./verify-books.ts')).runVerifyBooks(context),
  },
  {
    name: 'verify-statement',
    usage: 'FILE --signature TEXT --key KEY',
    summary:
      'Verify the signature of a downloaded statement: TEXT is its header x-headgate-signature, KEY a file with the answer ' +
      'of /v1/statement-key, or with the public key in PEM.',
    words: { min: 1, max: 1 },
    options: {
      signature: { type: 'string', about: 'value of the header x-headgate-signature' },
      key: { type: 'string', about: 'a file with the public key' },
    },
    run: async (context) => (await import('./verify-statement.ts')).runVerifyStatement(context),
  },
];
