import { readFileSync, writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import { formatFigure, isWithin, noiseOf, type Budget, type Figure } from './budget.ts';
import { checkBooks, measureJson, measureOpen, type Bench, type Figures } from './measure.ts';
import { type Memory, startStack, type Stack, type Variant, type VariantName } from './stack.ts';
import { median } from './statistics.ts';

/**
 * `npm run bench:guard`: fails if a request has become more expensive than `budget.json` allows. It takes less than two
 * minutes. CPU times are compared with bare Hono in the same round of the same run, because machines differ. Allocated
 * bytes do not depend on the machine, nor do promoted bytes: those of objects that outlive collections of young objects,
 * as they do if something keeps ended requests. A figure fails only if it exceeds its budget by more than the noise of
 * its rounds. `--json PATH` writes the figures.
 *
 * A budget may be lowered. A commit that raises one says why.
 */

const warmUpMs = 4000;
const jsonMs = 500;
const jsonRounds = 16;
/** The deviation of a few rounds says little of their noise: three equal ones by chance would have none. */
const frameRounds = 5;
const streams = { connections: 50, framesPerSecond: 50, rampMs: 300, windowMs: 1000 };

/** Rounds of each variant, in the order in which they ran. */
type Rounds = Map<VariantName, Figures[]>;

async function alternate(
  { stack }: Bench,
  variants: readonly Variant[],
  rounds: number,
  measure: (variant: Variant) => Promise<Figures>,
): Promise<Rounds> {
  const found: Rounds = new Map(variants.map(({ name }) => [name, []]));
  for (let round = 0; round < rounds; round += 1) {
    stack.pinAll();
    for (const variant of variants) found.get(variant.name)?.push(await measure(variant));
  }
  return found;
}

/** Compares a figure of a variant with the CPU time of bare Hono, round by round. */
function ratio(id: string, rounds: Rounds, name: VariantName, figure: string): Figure {
  const bare = rounds.get('bare') ?? [];
  const values = (rounds.get(name) ?? []).map(
    (round, at) => (round[figure] ?? Number.NaN) / (bare[at]?.['cpuMicros'] ?? Number.NaN),
  );
  return { id, value: median(values), noise: noiseOf(values) };
}

interface MemoryRun {
  readonly rounds: Rounds;
  /** Bytes that a variant allocates per unit, and those of them that outlive collections of young objects. */
  readonly figures: readonly Figure[];
}

async function measureMemory(
  prefix: string,
  variant: Variant,
  run: () => Promise<Rounds>,
  unit: string,
): Promise<MemoryRun> {
  const before = variant.memory();
  const rounds = await run();
  const after = variant.memory();
  const units = (rounds.get(variant.name) ?? []).reduce((sum, round) => sum + (round[unit] ?? 0), 0);
  const figure = (name: string, bytes: number): Figure => ({ id: `${prefix}.${name}`, value: bytes / units, noise: 0 });
  const grown = (name: keyof Memory): number => (after?.[name] ?? Number.NaN) - (before?.[name] ?? 0);
  return {
    rounds,
    figures: [figure('allocatedBytes', grown('allocated')), figure('promotedBytes', grown('promoted'))],
  };
}

async function measureAll(bench: Bench): Promise<Figure[]> {
  const { bare, relay, gateway } = bench.stack.variants;
  const { redis } = bench.stack;
  const variants = [bare, relay, gateway, ...(redis === null ? [] : [redis])];
  for (const variant of variants) await measureJson(bench, variant, warmUpMs);
  const json = await measureMemory(
    'json.gateway',
    gateway,
    () => alternate(bench, variants, jsonRounds, (variant) => measureJson(bench, variant, jsonMs)),
    'requests',
  );
  const frames = await measureMemory(
    'frames.gateway',
    gateway,
    () => alternate(bench, variants, frameRounds, (variant) => measureOpen(bench, variant, streams)),
    'allFrames',
  );
  const shared = redis === null ? [] : [redis.name];
  return [
    ...(['relay', 'gateway', ...shared] as const).flatMap((name) => [
      ratio(`json.${name}.cpu`, json.rounds, name, 'cpuMicros'),
      ratio(`frames.${name}.cpu`, frames.rounds, name, 'cpuMicros'),
    ]),
    ...(['gateway', ...shared] as const).map((name) =>
      ratio(`json.${name}.postgresCpu`, json.rounds, name, 'postgresMicros'),
    ),
    ...shared.map((name) => ratio(`json.${name}.redisCpu`, json.rounds, name, 'redisMicros')),
    ...json.figures,
    ...frames.figures,
  ];
}

function readBudget(): Budget {
  return JSON.parse(readFileSync(new URL('budget.json', import.meta.url), 'utf8')) as Budget;
}

async function runGuard(stack: Stack): Promise<Figure[]> {
  // The request with which the stack checks each gateway.
  const bench: Bench = { stack, tally: { requests: 1, outputTokens: 48 } };
  const figures = await measureAll(bench);
  const fault = await checkBooks(bench);
  if (fault !== null) throw new Error(fault);
  return figures;
}

const { values: options } = parseArgs({ options: { json: { type: 'string' } } });
console.log(
  `${cpus().length} × ${cpus()[0]?.model ?? 'unknown CPU'}, Node ${process.versions.node}, ` +
    `load before ${loadavg()[0]?.toFixed(2) ?? '?'}; CPU as a multiple of bare Hono, allocation in bytes`,
);
const stack = await startStack({ gatewayFlags: ['--trace-gc-nvp'] });
try {
  const figures = await runGuard(stack);
  if (options.json !== undefined) writeFileSync(options.json, JSON.stringify(figures, null, 2));
  const budget = readBudget();
  for (const figure of figures) console.log(formatFigure(figure, budget));
  if (!figures.every((figure) => isWithin(figure, budget))) process.exitCode = 1;
} finally {
  await stack.stop();
}
