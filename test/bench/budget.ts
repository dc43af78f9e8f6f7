import { median } from './statistics.ts';

/** One measured figure of `npm run bench:guard`. */
export interface Figure {
  /** Name in `budget.json`. */
  readonly id: string;
  readonly value: number;
  /** Two standard errors of the median; 0 for figures that are no median of rounds. */
  readonly noise: number;
}

/** Most that each figure may be, by its id. */
export type Budget = Readonly<Record<string, number>>;

/** Returns two standard errors of the median, with the spread of the values estimated from their median deviation. */
export function noiseOf(values: readonly number[]): number {
  const middle = median(values);
  const spread = 1.4826 * median(values.map((value) => Math.abs(value - middle)));
  return (2 * 1.2533 * spread) / Math.sqrt(values.length);
}

/** True if a figure is within its budget, or above it by no more than its noise. */
export function isWithin({ id, value, noise }: Figure, budget: Budget): boolean {
  const most = budget[id];
  return most !== undefined && value - noise <= most;
}

const format = (value: number): string => (value >= 100 ? value.toFixed(0) : value.toFixed(2));

export function formatFigure(figure: Figure, budget: Budget): string {
  const { id, value, noise } = figure;
  const most = budget[id];
  const measured = `${format(value)}${noise > 0 ? ` ± ${format(noise)}` : ''}`;
  const verdict = isWithin(figure, budget) ? 'ok' : 'OVER';
  return `${verdict.padEnd(5)} ${id.padEnd(32)} ${measured.padEnd(16)} ${most === undefined ? 'no budget' : `budget ${format(most)}`}`;
}
