import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lineOf } from './report.ts';
import { rows } from './rows/rows.ts';
import { openPlace, type Place, runRow } from './run.ts';

/** The rows of `npm run chaos` that matter most, with short faults, side by side. */
// `redis-empty` is for by hand: beside all other files it failed in a way that alone, and beside these rows, it does not.
const names = ['gateway-killed', 'engine-faults', 'engine-killed', 'engine-replica-killed', 'sigterm'];

/** Files of other suites run at the same time. */
const slack = 20;

const options = { seed: 12, seconds: 3, kills: 1, slack, out: null };

let place: Place;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place.close());

describe.concurrent('the books hold', () => {
  it.each(names)('through %s', async (name) => {
    const row = rows.find((one) => one.name === name);
    if (row === undefined) throw new Error(`there is no row ${name}`);
    const outcome = await runRow(place, row, options);
    expect(outcome.verdict, lineOf(outcome)).toBe('holds');
  });
});
