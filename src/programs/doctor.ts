import type { Command } from '#edge/cli/cli.ts';

export const doctorCommand: Command = {
  name: 'doctor',
  usage: '',
  summary:
    'Say what a gateway of this environment lacks, and what to do: looks at configuration, PostgreSQL, backups, Redis, ' +
    'Docker, GPUs, engine files, clock, disk, terraform, platform key and gateways as it would use them; changes nothing.',
  words: { min: 0, max: 0 },
  options: {},
  // All of a gateway is loaded to look at it: other commands need not wait for that.
  run: async (context) => (await import('./doctor-report.ts')).runDoctor(context),
};
