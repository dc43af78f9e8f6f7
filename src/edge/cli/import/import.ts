import { type Command, textFlag, UsageError } from '#edge/cli/shell/shell.ts';

const options = {
  out: { type: 'string', about: 'folder for the engine files' },
  force: { type: 'boolean', about: 'overwrite existing files' },
} as const;

export const importCommands: readonly Command[] = [
  {
    name: 'import llama-swap',
    usage: 'FILE [--out FOLDER] [--force]',
    summary: "Create engine files from llama-swap's config.yaml; lists settings that cannot be carried over.",
    words: { min: 1, max: 1 },
    options,
    // Imported on use: the reader of engine files takes longer to load than most commands take to run.
    run: async (context) => (await import('./write-files.ts')).writeFiles(context, 'llama-swap'),
  },
  {
    name: 'import litellm',
    usage: 'FILE [--out FOLDER] [--force] | --database URL [--org ID] [--dry-run]',
    summary:
      "Create engine files from litellm's config.yaml; or, with --database, projects and keys from its teams and virtual " +
      'keys, whose secrets keep working. Lists what cannot be carried over, and overwrites nothing.',
    words: { min: 0, max: 1 },
    options: {
      ...options,
      database: { type: 'string', about: "URL of litellm's PostgreSQL database, which is only read" },
      org: { type: 'string', about: 'with --database: another organization than that of the API key' },
      'dry-run': { type: 'boolean', about: 'with --database: check everything, and change nothing' },
    },
    async run(context) {
      const database = textFlag(context, 'database');
      if (database !== null) return (await import('./send-litellm.ts')).sendLitellm(context, database);
      if (context.words.length === 0) throw new UsageError('give the file config.yaml, or --database URL');
      for (const name of ['org', 'dry-run']) {
        if (context.flags[name] !== undefined) throw new UsageError(`--${name} requires --database`);
      }
      return (await import('./write-files.ts')).writeFiles(context, 'litellm');
    },
  },
];
