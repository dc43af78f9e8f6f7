import { parseArgs } from 'node:util';
import { lineOf } from './report.ts';
import type { Row } from './row.ts';
import { rows } from './rows/rows.ts';
import { openPlace, runRow, type RunOptions } from './run.ts';

/** `npm run chaos`: the table of faults, one row after the other. */

const usage = `npm run chaos -- [--rows name,name] [--seed N] [--seconds N] [--kills N] [--requests N]
              [--slack N] [--out DIR] [--list]

Runs gateways, PostgreSQL, Redis and an engine of its own for each row, breaks what the row says, and compares what
clients saw with the books and with what the engine counted. Prints a line for each row and ends with 1 when one does
not hold. --seed makes the same choices again; --seconds is how long faults last, --kills how often a gateway is
killed, --requests how many requests an ordinary day has. --slack N takes every bound of time N times, for a machine
that is busy. --out names a folder that takes what clients saw and what gateways printed.
`;

class UsageError extends Error {}

const options = {
  rows: { type: 'string' },
  seed: { type: 'string' },
  seconds: { type: 'string' },
  kills: { type: 'string' },
  requests: { type: 'string' },
  slack: { type: 'string' },
  out: { type: 'string' },
  list: { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

interface Wish extends RunOptions {
  readonly rows: readonly Row[];
  readonly list: boolean;
}

const defaults = { seconds: 8, kills: 5, requests: 2000 };

function readWish(args: readonly string[]): Wish | null {
  const { values } = parseArgs({ args: [...args], options });
  if (values.help === true) return null;
  const whole = (name: 'seed' | keyof typeof defaults | 'slack', fallback: number): number => {
    const text = values[name];
    if (text === undefined) return fallback;
    if (!/^\d{1,9}$/.test(text)) throw new UsageError(`--${name}: expected a whole number, not "${text}"`);
    return Number(text);
  };
  return {
    rows: chosenRows(values.rows),
    list: values.list === true,
    seed: whole('seed', Math.floor(Math.random() * 1_000_000)),
    seconds: whole('seconds', defaults.seconds),
    kills: whole('kills', defaults.kills),
    requests: whole('requests', defaults.requests),
    slack: Math.max(1, whole('slack', 1)),
    out: values.out ?? null,
  };
}

function chosenRows(text: string | undefined): readonly Row[] {
  if (text === undefined) return rows;
  return text.split(',').map((name) => {
    const found = rows.find((row) => row.name === name.trim());
    if (found === undefined) throw new UsageError(`--rows: there is no row "${name}"; --list names them`);
    return found;
  });
}

async function main(): Promise<number> {
  const wish = readWish(process.argv.slice(2));
  if (wish === null) {
    process.stdout.write(usage);
    return 0;
  }
  if (wish.list) {
    for (const { name, what } of wish.rows) process.stdout.write(`${name.padEnd(28)} ${what}\n`);
    return 0;
  }
  process.stdout.write(`seed ${wish.seed}, faults of ${wish.seconds} s, ${wish.kills} kills\n`);
  const place = await openPlace();
  let failed = 0;
  try {
    for (const row of wish.rows) {
      const outcome = await runRow(place, row, wish);
      process.stdout.write(`${lineOf(outcome)}\n`);
      if (outcome.verdict === 'fails') failed += 1;
    }
  } finally {
    place.close();
  }
  process.stdout.write(failed === 0 ? 'every row holds\n' : `${failed} of ${wish.rows.length} rows do not hold\n`);
  return failed === 0 ? 0 : 1;
}

for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => process.exit(130));

// By `exit`: where Node takes down what is left of connections and pipes of killed processes it may never come to an end.
try {
  process.exit(await main());
} catch (error) {
  const isUsage = error instanceof UsageError || (error instanceof TypeError && 'code' in error);
  if (!isUsage) throw error;
  process.stderr.write(`chaos: ${error.message}\n${usage}`);
  process.exit(2);
}
