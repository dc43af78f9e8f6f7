import { parseArgs } from 'node:util';
import { fuzz, type Outcome, type RunOptions } from './run.ts';
import { targets } from './targets.ts';
import { type TargetName, targetNames } from './target.ts';

/** `npm run fuzz`: the targets that are named, or all, one after the other. */

const usage = `npm run fuzz -- [--target ${targetNames.join('|')}] [--seconds 60] [--seed N] [--path P]

Each target is fed for so many seconds; without --target all of them are. --seed makes the same cases again, --path
with it the one that failed.
`;

class UsageError extends Error {}

interface Wish {
  readonly names: readonly TargetName[];
  readonly seconds: number;
  readonly seed: number;
  readonly path: string | null;
}

const options = {
  target: { type: 'string' },
  seconds: { type: 'string' },
  seed: { type: 'string' },
  path: { type: 'string' },
  help: { type: 'boolean', short: 'h' },
} as const;

function readWish(args: readonly string[]): Wish | null {
  const { values } = parseArgs({ args: [...args], options });
  if (values.help === true) return null;
  const whole = (name: 'seconds' | 'seed', text: string): number => {
    if (!/^-?\d{1,10}$/.test(text)) throw new UsageError(`--${name}: expected a whole number, not "${text}"`);
    return Number(text);
  };
  const name = targetNames.find((known) => known === values.target);
  if (values.target !== undefined && name === undefined) {
    throw new UsageError(`--target: expected one of ${targetNames.join(', ')}, not "${values.target}"`);
  }
  const path = values.path ?? null;
  if (path !== null && (values.seed === undefined || name === undefined)) {
    throw new UsageError('--path: needs the --target and the --seed that it was told with');
  }
  return {
    names: name === undefined ? targetNames : [name],
    seconds: whole('seconds', values.seconds ?? '60'),
    seed: values.seed === undefined ? Math.floor(Math.random() * 0x7fff_ffff) : whole('seed', values.seed),
    path,
  };
}

function run(name: TargetName, wished: RunOptions): Promise<Outcome> {
  switch (name) {
    case 'http':
      return fuzz(targets.http, wished);
    case 'json':
      return fuzz(targets.json, wished);
    case 'engine-files':
      return fuzz(targets['engine-files'], wished);
  }
}

async function main(): Promise<number> {
  const wish = readWish(process.argv.slice(2));
  if (wish === null) {
    process.stdout.write(usage);
    return 0;
  }
  let failed = false;
  for (const name of wish.names) {
    process.stdout.write(`${name}: seed ${wish.seed}, ${wish.seconds} seconds\n`);
    const length = { seconds: wish.seconds };
    const { cases, seconds, failure } = await run(name, { ...wish, databaseUrl: null, length });
    const rate = (cases / seconds).toFixed(1);
    process.stdout.write(`${name}: ${cases} cases in ${Math.round(seconds)} seconds, ${rate} a second\n`);
    if (failure !== null) process.stdout.write(`\n${failure}\n\n`);
    failed ||= failure !== null;
  }
  return failed ? 1 : 0;
}

try {
  process.exitCode = await main();
} catch (error) {
  const isUsage = error instanceof UsageError || (error instanceof TypeError && 'code' in error);
  if (!isUsage) throw error;
  process.stderr.write(`fuzz: ${error.message}\n${usage}`);
  process.exitCode = 2;
}
