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
      'Say what a gateway of this environment lacks, and what to do: looks at configuration, PostgreSQL, backups, Redis, ' +
      'Docker, GPUs, engine files, clock, disk, terraform, platform key and gateways as it would use them; changes nothing.',
    words: { min: 0, max: 0 },
    options: {},
    run: async (context) => (await import('./doctor-report.ts')).runDoctor(context),
  },
  {
    name: 'welcome',
    usage: '',
    summary:
      'Make a link that signs the platform admin in to the pages: once, within ten minutes, in the database ' +
      'of DATABASE_URL or of HEADGATE_DATA_DIR itself. The link leads to the gateway of HEADGATE_URL, else to the one ' +
      'that was started last on that data folder.',
    words: { min: 0, max: 0 },
    options: {},
    run: async (context) => (await import('./welcome-command.ts')).runWelcome(context),
  },
  {
    name: 'keys recover',
    usage: '[--revoke-others]',
    summary:
      'Make a new management key of the platform admin: in the database of DATABASE_URL or of HEADGATE_DATA_DIR itself, ' +
      'also while a gateway runs. --revoke-others ends all other management keys of platform admins.',
    words: { min: 0, max: 0 },
    options: { 'revoke-others': { type: 'boolean', about: 'end all other management keys of platform admins' } },
    run: async (context) => (await import('./keys-recover.ts')).runKeysRecover(context),
  },
  {
    name: 'backup',
    usage: 'FILE',
    summary:
      'Write all that the database holds, but who is signed in and links that are open, to a new file: as it is at one ' +
      'moment, also while gateways run; the database ' +
      'of DATABASE_URL, or the built-in one of HEADGATE_DATA_DIR.',
    words: { min: 1, max: 1 },
    options: {},
    run: async (context) => (await import('./backup.ts')).runBackup(context),
  },
  {
    name: 'restore',
    usage: 'FILE [--check] [--replace] [--spool book|leave] [--pending resume|end]',
    summary:
      'Put a backup into an empty database: that of DATABASE_URL, or of HEADGATE_DATA_DIR, whole or not at all, while no ' +
      'gateway uses it. --check only reads the file. --replace puts it in the place of what is there. --spool says what ' +
      'becomes of usage on this disk that the database had not taken, --pending what becomes of batches, runs and alerts ' +
      'that had not ended.',
    words: { min: 1, max: 1 },
    options: {
      check: { type: 'boolean', about: 'say whether the file is whole, and change nothing' },
      replace: { type: 'boolean', about: 'give up what the database holds' },
      spool: { type: 'string', about: 'usage that lies on this disk: book or leave' },
      pending: { type: 'string', about: 'batches, runs and alerts that had not ended: resume or end' },
    },
    run: async (context) => (await import('./restore.ts')).runRestore(context),
  },
  {
    name: 'verify-books',
    usage: '[--organization ID] [--heads] [--expect HEADS.json]',
    summary:
      'Prove ledgers, sums and balances: in the database of DATABASE_URL, or of HEADGATE_DATA_DIR. --heads prints what ' +
      'they come to, to be kept elsewhere; --expect compares with that: only so a whole history that was exchanged shows.',
    words: { min: 0, max: 0 },
    options: {
      organization: { type: 'string', about: 'of one alone: org_…' },
      heads: { type: 'boolean', about: 'print what the ledgers come to, as JSON' },
      expect: { type: 'string', about: 'a file of --heads, from which they must go on' },
    },
    run: async (context) => (await import('./verify-books.ts')).runVerifyBooks(context),
  },
  {
    name: 'verify-statement',
    usage: 'FILE --signature TEXT --key KEY',
    summary:
      'Prove a statement as it was downloaded: TEXT is its header x-headgate-signature, KEY a file with the answer of ' +
      '/v1/statement-key, or the public key in PEM.',
    words: { min: 1, max: 1 },
    options: {
      signature: { type: 'string', about: 'as the answer with the statement has it' },
      key: { type: 'string', about: 'a file with the public key' },
    },
    run: async (context) => (await import('./verify-statement.ts')).runVerifyStatement(context),
  },
];
