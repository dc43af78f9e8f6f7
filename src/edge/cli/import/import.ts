import type { Command } from '#edge/cli/shell/shell.ts';

function importCommand(program: 'llama-swap' | 'litellm', summary: string): Command {
  return {
    name: `import ${program}`,
    usage: 'FILE [--out FOLDER] [--force]',
    summary,
    words: { min: 1, max: 1 },
    options: {
      out: { type: 'string', about: 'folder for the engine files' },
      force: { type: 'boolean', about: 'overwrite existing files' },
    },
    // Imported on use: the reader of engine files takes longer to load than most commands take to run.
    run: async (context) => (await import('./write-files.ts')).writeFiles(context, program),
  };
}

export const importCommands: readonly Command[] = [
  importCommand(
    'llama-swap',
    "Create engine files from llama-swap's config.yaml; lists settings that cannot be carried over.",
  ),
  importCommand(
    'litellm',
    "Create engine files from litellm's config.yaml; lists settings that cannot be carried over.",
  ),
];
