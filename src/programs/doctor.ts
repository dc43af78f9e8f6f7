import type { Command } from '#edge/cli/cli.ts';

export const doctorCommand: Command = {
  name: 'doctor',
  usage: '',
  summary:
    'Look at configuration, PostgreSQL, Redis, Docker, GPUs, engine files, clock, disk, terraform and platform key as a ' +
    'gateway of this environment would use them, and say what to do; changes nothing.',
  words: { min: 0, max: 0 },
  options: {},
  // All of a gateway is loaded to look at it: other commands need not wait for that.
  run: async (context) => (await import('./doctor-report.ts')).runDoctor(context),
};
