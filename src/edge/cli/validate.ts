import type { Command } from '#edge/cli/shell/shell.ts';

export const validateCommand: Command = {
  name: 'engines validate',
  usage: '[FOLDER | FILE…]',
  summary: 'Check engine files without a gateway; default: HEADGATE_ENGINES_DIR or ./engines.',
  words: { min: 0, max: 10_000 },
  options: {},
  // Imported on use: the reader of engine files takes longer to load than most commands take to run.
  run: async (context) => (await import('./check-files.ts')).checkFiles(context),
};
