import { writeFileSync } from 'node:fs';
import { cpus, loadavg } from 'node:os';
import { parseArgs } from 'node:util';
import {
  checkBooks,
  measureFirst,
  measureJson,
  measureOpen,
  type Bench,
  type Figures,
  type OpenStreams,
} from './measure.ts';
import { pssMb } from './processes.ts';
import { formatSection, type Row, type Section } from './report.ts';
import { startStack, type Stack, type Variant } from './stack.ts';

/**
 * `npm run bench`: what the gateway costs beside an engine asked directly and beside bare Hono with Pool.dispatch, in
 * one run. It reports and judges nothing but the answers and the books. `--quick` takes less than a minute, `--json
 * PATH` writes every figure of every round, `--only json,first,frames,open` leaves parts out, `--cpu-prof DIR` writes
 * a CPU profile of the gateway (what is then measured is slower), `--node-flags "…"` starts the gateway's Node with them.
 */

interface Plan {
  /** JSON requests of each variant before anything is measured: after this long, their cost falls no more. */
  readonly warmUpMs: number;
  readonly rounds: number;
  /** Many and short: neighbours on the machine change what is measured by more than what is looked for. */
  readonly jsonRounds: number;
  readonly jsonMs: number;
  readonly firstMs: number;
  readonly frames: OpenStreams;
  readonly openRounds: number;
  readonly open: readonly OpenStreams[];
}

const fullPlan: Plan = {
  warmUpMs: 10_000,
  rounds: 4,
  jsonRounds: 24,
  jsonMs: 1000,
  firstMs: 2000,
  frames: { connections: 300, framesPerSecond: 20, rampMs: 500, windowMs: 2500 },
  openRounds: 2,
  open: [
    { connections: 1000, framesPerSecond: 4, rampMs: 1000, windowMs: 3000 },
    { connections: 2000, framesPerSecond: 2, rampMs: 2000, windowMs: 4000 },
  ],
};

const quickPlan: Plan = {
  warmUpMs: 1500,
  rounds: 2,
  jsonRounds: 4,
  jsonMs: 1000,
  firstMs: 1200,
  frames: { ...fullPlan.frames, windowMs: 1500 },
  openRounds: 1,
  open: [{ connections: 2000, framesPerSecond: 2, rampMs: 2000, windowMs: 2500 }],
};

/** Runs variants in turn, round after round, so that what else the machine does strikes all of them. */
async function alternate(
  bench: Bench,
  variants: readonly Variant[],
  rounds: number,
  measure: (variant: Variant) => Promise<Figures>,
): Promise<Row[]> {
  const rows = variants.map((variant) => ({ name: variant.name, variant, rounds: [] as Figures[] }));
  for (let round = 0; round < rounds; round += 1) {
    for (const row of rows) {
      bench.stack.pinAll();
      row.rounds.push(await measure(row.variant));
    }
  }
  return rows.map(({ name, rounds: figures }) => ({ name, rounds: figures }));
}

async function runPlan(bench: Bench, plan: Plan, parts: readonly string[]): Promise<Section[]> {
  const sections: Section[] = [];
  const add = (title: string, rows: Row[]): void => {
    const section = { title, rows };
    sections.push(section);
    console.log(formatSection(section));
  };
  const { direct, bare, gateway } = bench.stack.variants;
  const all = [direct, bare, gateway];
  const proxies = [bare, gateway];
  const withRedis = bench.stack.redis === null ? all : [...all, bench.stack.redis];
  // Once over everything that is hot, so that nobody is measured while his code is compiled.
  for (const variant of withRedis) await measureJson(bench, variant, plan.warmUpMs);
  if (parts.includes('json')) {
    const rows = await alternate(bench, withRedis, plan.jsonRounds, (variant) =>
      measureJson(bench, variant, plan.jsonMs),
    );
    add('JSON requests: 32 connections, 2 KB prompt, 0.9 KB answer', rows);
  }
  if (parts.includes('first')) {
    const rows = await alternate(bench, all, plan.rounds, (variant) => measureFirst(bench, variant, plan.firstMs));
    add('Short streams: 50 connections; first = time to the first event, tail = finish event to the end', rows);
  }
  if (parts.includes('frames')) {
    const rows = await alternate(bench, proxies, plan.rounds, (variant) => measureOpen(bench, variant, plan.frames));
    add(`Frames: ${plan.frames.connections} streams with ${plan.frames.framesPerSecond} frames/s each`, rows);
  }
  if (!parts.includes('open')) return sections;
  for (const open of plan.open) {
    const rows = await alternate(bench, all, plan.openRounds, (variant) => measureOpen(bench, variant, open));
    add(`${open.connections} open streams with ${open.framesPerSecond} frames/s each`, rows);
  }
  return sections;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      quick: { type: 'boolean', default: false },
      json: { type: 'string' },
      only: { type: 'string', default: 'json,first,frames,open' },
      'cpu-prof': { type: 'string' },
      'node-flags': { type: 'string', default: '' },
    },
  });
  const profileDir = values['cpu-prof'];
  const gatewayFlags = values['node-flags'].split(' ').filter((flag) => flag !== '');
  if (profileDir !== undefined) gatewayFlags.push('--cpu-prof', `--cpu-prof-dir=${profileDir}`);
  const stack = await startStack({ gatewayFlags });
  try {
    // The request that started the engine.
    const bench: Bench = { stack, tally: { requests: 1, outputTokens: 48 } };
    const { cores, variants } = stack;
    const where =
      cores === null
        ? 'not pinned to cores (no taskset)'
        : `proxies on core ${cores.proxy}; engine, Postgres and load on core ${cores.rest}`;
    console.log(`${cpus().length} × ${cpus()[0]?.model ?? 'unknown CPU'}, Node ${process.versions.node}; ${where}`);
    console.log(`Load of the machine before: ${loadavg()[0]?.toFixed(2) ?? '?'}; PSS at rest: ${restOf(variants)}\n`);
    const sections = await runPlan(bench, values.quick ? quickPlan : fullPlan, values.only.split(','));
    if (values.json !== undefined) writeFileSync(values.json, JSON.stringify({ cores, sections }, null, 2));
    const fault = await checkBooks(bench);
    const { requests, outputTokens } = bench.tally;
    console.log(fault ?? `Books: ${requests} requests, ${outputTokens} output tokens, as the load saw them.`);
    return fault === null ? 0 : 1;
  } finally {
    await stack.stop();
  }
}

function restOf({ bare, gateway }: Stack['variants']): string {
  return `bare ${pssMb(bare.pid).toFixed(0)} MB, gateway ${pssMb(gateway.pid).toFixed(0)} MB`;
}

process.exitCode = await main();
