import type { Figures } from './measure.ts';
import type { VariantName } from './stack.ts';
import { median } from './statistics.ts';

/** The rounds of one variant. */
export interface Row {
  readonly name: VariantName;
  readonly rounds: readonly Figures[];
}

export interface Section {
  readonly title: string;
  readonly rows: readonly Row[];
}

const titles: Record<string, string> = {
  requestsPerSecond: 'req/s',
  cpuMicros: 'CPU µs',
  postgresMicros: 'PG µs',
  redisMicros: 'Redis µs',
  p50Ms: 'p50 ms',
  p99Ms: 'p99 ms',
  firstP50Ms: 'first p50',
  firstP99Ms: 'first p99',
  tailP50Ms: 'tail p50',
  tailP99Ms: 'tail p99',
  streamMicros: 'CPU µs/stream',
  delayP50Ms: 'delay p50',
  delayP99Ms: 'delay p99',
  pssMb: 'PSS MB',
  rssMb: 'RSS MB',
};

function valuesOf(row: Row, figure: string): number[] {
  return row.rounds.map((round) => round[figure] ?? Number.NaN);
}

/** Compares two variants round by round and gives the median: what the machine did meanwhile struck both. */
function compared(row: Row, base: Row, figure: string, compare: (a: number, b: number) => number): number {
  const others = valuesOf(base, figure);
  return median(valuesOf(row, figure).map((value, round) => compare(value, others[round] ?? Number.NaN)));
}

function format(value: number): string {
  if (!Number.isFinite(value)) return '–';
  return Math.abs(value) >= 100 ? value.toFixed(0) : Math.abs(value) >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function line(label: string, cells: readonly string[]): string {
  return label.padEnd(24) + cells.map((cell) => cell.padStart(14)).join('');
}

/** A table of the medians, and how the gateway compares with the others in the same round. */
export function formatSection({ title, rows }: Section): string {
  const figures = Object.keys(rows[0]?.rounds[0] ?? {}).filter((figure) => figure in titles);
  const lines = [
    title,
    line(
      '',
      figures.map((figure) => titles[figure] ?? figure),
    ),
  ];
  for (const row of rows)
    lines.push(
      line(
        row.name,
        figures.map((figure) => format(median(valuesOf(row, figure)))),
      ),
    );
  const gateway = rows.find(({ name }) => name === 'gateway');
  const bare = rows.find(({ name }) => name === 'bare');
  const direct = rows.find(({ name }) => name === 'direct');
  const redis = rows.find(({ name }) => name === 'redis');
  if (gateway !== undefined && bare !== undefined) {
    const ratios = figures.map((figure) => compared(gateway, bare, figure, (a, b) => a / b));
    lines.push(
      line(
        'gateway ÷ bare',
        ratios.map((ratio) => (Number.isFinite(ratio) ? `${format(ratio)}×` : '–')),
      ),
    );
  }
  if (redis !== undefined && gateway !== undefined) {
    const added = figures.map((figure) => compared(redis, gateway, figure, (a, b) => a - b));
    lines.push(line('redis − gateway', added.map(format)));
  }
  for (const row of [bare, gateway]) {
    if (row === undefined || direct === undefined) continue;
    const added = figures.map((figure) =>
      figure.endsWith('Ms') ? compared(row, direct, figure, (a, b) => a - b) : Number.NaN,
    );
    lines.push(line(`${row.name} − direct`, added.map(format)));
  }
  return `${lines.join('\n')}\n`;
}
