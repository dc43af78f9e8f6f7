import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { lineOf } from './report.ts';
import { rows } from './rows/rows.ts';
import { openPlace, type Place, runRow } from './run.ts';

/** The rows of `npm run chaos` that matter most, with short faults, side by side. */
const names = ['gateway-killed', 'redis-empty', 'engine-faults', 'engine-killed', 'engine-replica-killed', 'sigterm'];

/** Files of other suites run at the same time. */
const slack = 20;

const options = { seed: 12, seconds: 3, kills: 1, requests: 100, slack, out: null };

let place: Place;
beforeAll(async () => {
  place = await openPlace();
});
afterAll(() => place.close());

describe.concurrent('the ledger', () => {
  it.each(names)('stays exact through %s', async (name) => {
    const row = rows.find((one) => one.name === name);
    if (row === undefined) throw new Error(`there is no row ${name}`);
    const outcome = await runRow(place, row, options);
    // At once: the whole list of failures comes when everything is done.
    if (outcome.verdict !== 'holds') process.stderr.write(`${lineOf(outcome)}\n`);
    expect(outcome.verdict, lineOf(outcome)).toBe('holds');
  });
});
