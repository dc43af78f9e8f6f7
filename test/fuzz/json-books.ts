import { formatUsd, parseDecimal, PICO_DIGITS } from '#base/money.ts';
import { type Body, eventually } from '#test/inference/inference-gateway.ts';
import { openingUsd, type Organization } from './gateway.ts';
import type { Usage } from './json-engine.ts';

/** An engine's work for a request, and how it was answered. */
export interface Served {
  readonly status: number;
  readonly usage: Usage;
}

export interface Prices {
  readonly input: bigint;
  readonly cached: bigint;
  readonly output: bigint;
}

async function readAll(attacker: Organization, path: string): Promise<Body[]> {
  const rows: Body[] = [];
  let cursor: string | null = '';
  while (cursor !== null) {
    const page: Body = await attacker.api(
      `${path}?limit=500${cursor === '' ? '' : `&cursor=${encodeURIComponent(cursor)}`}`,
    );
    rows.push(...page.data);
    cursor = page.next_cursor;
  }
  return rows;
}

const picoUsd = (usd: string): bigint => parseDecimal(usd, PICO_DIGITS) ?? -1n;

function costOf({ input, cached, output }: Usage, prices: Prices): bigint {
  return BigInt(input - cached) * prices.input + BigInt(cached) * prices.cached + BigInt(output) * prices.output;
}

/** The defect of one record against the engine's counts; null where there is none. */
function recordWrong(record: Body, served: Served | undefined, prices: Prices): string | null {
  const said = JSON.stringify(record);
  if (served === undefined || served.status !== 200)
    return record.cost === '0' ? null : `nobody was served for ${said}`;
  const { input, cached, output } = served.usage;
  const isSame =
    [record.input_tokens, record.input_cached_tokens, record.output_tokens].join() === [input, cached, output].join();
  if (!isSame) return `the engine counted ${JSON.stringify(served.usage)}, and the record is ${said}`;
  const cost = costOf(served.usage, prices);
  return picoUsd(record.cost) === cost ? null : `${formatUsd(cost)} was to be charged, and the record is ${said}`;
}

/** The defect of an organization's ledger; null where it equals the engine's counts. */
export async function booksWrong(
  attacker: Organization,
  served: ReadonlyMap<string, Served>,
  prices: Prices,
): Promise<string | null> {
  await eventually(async () => Number((await attacker.api('/v1/wallet')).held) === 0);
  const records = await readAll(attacker, '/v1/usage/requests');
  const byId = new Map(records.map((record) => [String(record.id), record]));
  if (byId.size !== records.length) return 'a request is billed twice';
  for (const [id, { status }] of served) {
    if (status === 200 && !byId.has(id)) return `the request ${id} was served and has no record`;
  }
  for (const [id, record] of byId) {
    const wrong = recordWrong(record, served.get(id), prices);
    if (wrong !== null) return wrong;
  }
  const charged = records.reduce((sum, { cost }) => sum + picoUsd(String(cost)), 0n);
  const entries = await readAll(attacker, '/v1/wallet/ledger');
  const booked = entries
    .filter(({ type }) => type === 'usage')
    .reduce((sum, { amount }) => sum - picoUsd(String(amount)), 0n);
  const { balance } = await attacker.api('/v1/wallet');
  const left = picoUsd(openingUsd) - charged;
  if (booked !== charged) return `the records are ${formatUsd(charged)} USD, the ledger has ${formatUsd(booked)}`;
  return picoUsd(balance) === left ? null : `${formatUsd(left)} USD are to be left, and ${String(balance)} are`;
}
