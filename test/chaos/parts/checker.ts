import { isUuid } from '#base/id.ts';
import type { Books, LedgerRow, SumRow, UsageRow } from './books.ts';
import type { Seen } from './client.ts';
import type { Counted } from './engine.ts';
import type { GatewayEnd } from './gateway.ts';

/**
 * Compares three sets: what clients saw, what the books hold, what the engine counted. What was seen complete is in the
 * books once; what is billed was generated; what was generated and is not billed has a reason on record.
 */
export interface Evidence {
  readonly seen: readonly Seen[];
  readonly books: Books;
  readonly counted: ReadonlyMap<string, Counted>;
  /** Ends of all gateways that there were. */
  readonly ends: readonly GatewayEnd[];
  /** Ids of records that the ledger had to reject, and that were found in quarantine. */
  readonly refused?: ReadonlySet<string>;
}

/** Pico-dollars per token, as the engine files of the rows say them. */
export const prices = { input: 100_000n, cached: 50_000n, output: 400_000n };

export interface Findings {
  readonly problems: readonly string[];
  readonly figures: Figures;
}

export interface Figures {
  readonly requests: number;
  readonly complete: number;
  /** Records that cost something. */
  readonly billed: number;
  /** Answers that were made, charged and not given. */
  readonly withheld: number;
}

export function check(evidence: Evidence): Findings {
  const byId = groupBy(evidence.books.usage, ({ id }) => id);
  return {
    problems: [
      ...checkSeen(evidence, byId),
      ...checkRepeated(evidence),
      ...checkBooks(evidence.books),
      ...checkBilled(evidence),
      ...checkUnbilled(evidence, byId),
    ],
    figures: {
      requests: evidence.seen.length,
      complete: evidence.seen.filter(({ complete }) => complete).length,
      billed: evidence.books.usage.filter(({ cost }) => cost > 0n).length,
      withheld: evidence.seen.filter((seen) => isWithheld(seen, byId)).length,
    },
  };
}

/** Checks what must hold within the books, whatever clients saw and engines counted. */
export function checkBooks(books: Books): string[] {
  return [...checkPrices(books), ...checkLedger(books), ...checkWallets(books), ...checkSums(books)];
}

type ById = ReadonlyMap<string, readonly UsageRow[]>;

function groupBy<T>(items: readonly T[], nameOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(nameOf(item));
    if (group === undefined) groups.set(nameOf(item), [item]);
    else group.push(item);
  }
  return groups;
}

/** One sentence for all that have the same fault, with the first of them. */
function sentence(wrong: readonly string[], what: string): string[] {
  return wrong.length === 0 ? [] : [`${wrong.length} ${what} (${wrong[0]})`];
}

/** The answer was kept back although it had been made: the client stayed to its end, and pays. */
function isWithheld({ complete, hasLeft, id, status, code }: Seen, byId: ById): boolean {
  if (complete || hasLeft || (status < 500 && code !== 'billing_unavailable')) return false;
  return byId.get(id ?? '')?.some(({ outcome, cost }) => outcome === 'completed' && cost > 0n) === true;
}

function checkSeen({ seen, books }: Evidence, byId: ById): string[] {
  const own = seen.filter(({ complete, replayed }) => complete && !replayed);
  const rowsOf = ({ id }: Seen): readonly UsageRow[] => byId.get(id ?? '') ?? [];
  const missing = own.filter((one) => rowsOf(one).length === 0);
  const other = own.filter((one) => {
    const [row] = rowsOf(one);
    if (row === undefined) return false;
    const isSame = row.outputTokens === one.outputTokens && row.inputTokens === one.inputTokens;
    return row.outcome !== 'completed' || !isSame;
  });
  const twice = [...byId].filter(([, rows]) => rows.length > 1);
  const less = seen.filter((one) => {
    const [row] = rowsOf(one);
    return row !== undefined && row.outcome !== 'completed' && row.outputTokens < one.frames;
  });
  return [
    ...sentence(missing.map(idOf), 'answers were seen complete and are not in the books'),
    ...sentence(other.map(idOf), 'answers were seen complete and are otherwise in the books'),
    ...sentence(
      twice.map(([id]) => id),
      'requests are in the books twice',
    ),
    ...sentence(less.map(idOf), 'broken-off streams showed more than is billed'),
    ...sentence(books.quarantined ?? [], 'records are in quarantine'),
  ];
}

const idOf = ({ id }: Seen): string => id ?? 'without an id';

/** An Idempotency-Key is billed once, however often it came. */
function checkRepeated({ seen, books }: Evidence): string[] {
  const names = new Set(seen.filter(({ ask }) => ask.idempotencyKey !== null).map(({ ask }) => ask.name));
  const rows = books.usage.filter(({ clientRequestId: name, cost }) => name !== null && names.has(name) && cost > 0n);
  const completed = groupBy(
    rows.filter(({ outcome }) => outcome === 'completed'),
    ({ clientRequestId }) => clientRequestId ?? '',
  );
  const twice = [...completed].filter(([, same]) => same.length > 1).map(([name]) => name);
  const replayed = seen.filter(({ replayed: isReplayed, complete }) => isReplayed && complete);
  const unknown = replayed.filter(({ ask }) => !completed.has(ask.name));
  return [
    ...sentence(twice, 'Idempotency-Keys were billed more than once'),
    ...sentence(unknown.map(idOf), 'answers were replayed whose first request is not in the books'),
  ];
}

function checkPrices({ usage }: Books): string[] {
  const wrong = usage.filter((row) => {
    const uncached = BigInt(row.inputTokens - row.cachedTokens);
    const input = uncached * prices.input + BigInt(row.cachedTokens) * prices.cached;
    return !row.cacheHit && row.cost + row.writtenOff !== input + BigInt(row.outputTokens) * prices.output;
  });
  const below = usage.filter(({ cost, writtenOff }) => cost < 0n || writtenOff < 0n);
  return [
    ...sentence(
      wrong.map(({ id }) => id),
      'records do not cost their tokens',
    ),
    ...sentence(
      below.map(({ id }) => id),
      'records have an amount below zero',
    ),
  ];
}

/** Each record that costs something is charged by one entry, its own or one of a group, and nothing else is charged. */
function checkLedger({ usage, ledger }: Books): string[] {
  const charges = ledger.filter(({ type }) => type === 'usage');
  const owned = usage.filter(({ cost, organizationId }) => cost > 0n && organizationId !== null);
  const entries = groupBy(charges, ({ organizationId, requestId, groupId }) =>
    chargeName(organizationId, groupId, requestId),
  );
  const charged = groupBy(owned, ({ organizationId, id, groupId }) => chargeName(organizationId ?? '', groupId, id));
  const wrong = [...charged].filter(([name, rows]) => {
    const [entry, ...others] = entries.get(name) ?? [];
    const cost = rows.reduce((sum, row) => sum + row.cost, 0n);
    const isOne = entry !== undefined && others.length === 0 && (entry.requests ?? rows.length) === rows.length;
    return !isOne || entry.change !== -cost;
  });
  const strangers = [...entries].filter(([name]) => !charged.has(name));
  return [
    ...sentence(
      wrong.map(([, rows]) => rows[0]?.id ?? ''),
      'charges are not what their records cost',
    ),
    ...sentence(
      strangers.map(([, [entry]]) => entry?.id ?? ''),
      'charges belong to no record',
    ),
  ];
}

/** The name that a charge and its records have in common. */
function chargeName(organizationId: string, groupId: string | null, requestId: string | null): string {
  return groupId === null ? `${organizationId} request ${requestId}` : `${organizationId} group ${groupId}`;
}

function checkWallets({ ledger, wallets }: Books): string[] {
  const byOrganization = groupBy(ledger, ({ organizationId }) => organizationId);
  const unproven = wallets.filter(({ organizationId, balance }) => {
    const entries = byOrganization.get(organizationId) ?? [];
    return balance !== entries.reduce((sum, { change }) => sum + change, 0n);
  });
  const broken = [...byOrganization].filter(([, entries]) => !isRunningSum(entries)).map(([id]) => id);
  const below = [...byOrganization]
    .map(([id, entries]) => ({ id, lowest: entries.reduce((low, { balanceAfter }) => min(low, balanceAfter), 0n) }))
    .filter(({ lowest }) => lowest < 0n);
  return [
    ...sentence(
      unproven.map(({ organizationId }) => organizationId),
      'wallets are not the sum of their ledger',
    ),
    ...sentence(broken, 'ledgers are not a running sum'),
    ...sentence(
      below.map(({ id, lowest }) => `${id} by $${(Number(-lowest) / 1e12).toFixed(6)}`),
      'wallets were below zero',
    ),
  ];
}

const min = (a: bigint, b: bigint): bigint => (a < b ? a : b);

function isRunningSum(entries: readonly LedgerRow[]): boolean {
  let balance = 0n;
  return entries.every(({ change, balanceAfter }) => {
    balance += change;
    return balance === balanceAfter;
  });
}

/** Hourly and daily sums say what the records say. */
function checkSums({ usage, sums }: Books): string[] {
  const rows = usage.filter(({ organizationId }) => organizationId !== null);
  const groups = groupBy(rows, (row) => [row.organizationId, row.keyId, row.projectId, row.model].join(' '));
  const expected = new Map<string, SumRow>();
  for (const table of new Set(['usage_hourly', ...sums.map((sum) => sum.table)])) {
    for (const [name, group] of groups) expected.set(`${table} ${name}`, sumOf(table, name, group));
  }
  const found = new Map(sums.map((sum) => [`${sum.table} ${sum.name}`, sum]));
  const names = new Set([...expected.keys(), ...found.keys()]);
  const wrong = [...names].filter((name) => !isSameSum(expected.get(name), found.get(name)));
  return sentence(wrong, 'sums are not those of their records');
}

function sumOf(table: string, name: string, rows: readonly UsageRow[]): SumRow {
  return {
    table,
    name,
    requests: rows.length,
    inputTokens: rows.reduce((sum, row) => sum + row.inputTokens, 0),
    outputTokens: rows.reduce((sum, row) => sum + row.outputTokens, 0),
    cost: rows.reduce((sum, row) => sum + row.cost, 0n),
  };
}

function isSameSum(a: SumRow | undefined, b: SumRow | undefined): boolean {
  if (a === undefined || b === undefined) return false;
  const isSameCount = a.requests === b.requests && a.inputTokens === b.inputTokens;
  return isSameCount && a.outputTokens === b.outputTokens && a.cost === b.cost;
}

/** Nothing is billed that the engine did not count. */
function checkBilled({ books, counted }: Evidence): string[] {
  const engine = books.usage.filter(({ cacheHit, organizationId }) => !cacheHit && organizationId !== null);
  const more = engine.filter((row) => {
    const own = counted.get(row.id);
    return row.outputTokens > (own?.outputTokens ?? 0) || row.inputTokens > (own?.promptTokens ?? 0);
  });
  const less = engine.filter(({ id, outcome, outputTokens }) => {
    const own = counted.get(id);
    return outcome === 'completed' && own !== undefined && own.attempts === 1 && outputTokens < own.outputTokens;
  });
  return [
    ...sentence(
      more.map(({ id }) => id),
      'records bill more than the engine counted',
    ),
    ...sentence(
      less.map(({ id }) => id),
      'completed requests are billed less than the engine counted',
    ),
  ];
}

/** Finds requests that an engine counted and no record has: their gateway was killed meanwhile, or they are lost. */
function checkUnbilled({ seen, counted, ends, refused }: Evidence, byId: ById): string[] {
  const killed = new Map(ends.filter(({ how }) => how !== 'terminated').map(({ pid, atMs }) => [pid, atMs]));
  const diedUnder = ({ pid, beganMs, complete }: Seen): boolean => !complete && (killed.get(pid) ?? 0) > beganMs;
  const bySeenId = new Map(seen.map((one) => [one.id, one]));
  // Clients whose gateway died before it had told them an id.
  let nameless = seen.filter((one) => one.id === null && diedUnder(one)).length;
  const lost: string[] = [];
  // A gateway tries its own engine out by requests that nobody asked for, under no request's id.
  for (const id of [...counted.keys()].filter(isUuid)) {
    if (byId.has(id) || refused?.has(id) === true) continue;
    const one = bySeenId.get(id);
    if (one !== undefined && diedUnder(one)) continue;
    if (one === undefined && nameless > 0) nameless -= 1;
    else lost.push(id);
  }
  return sentence(lost, 'requests were generated and are not in the books, with no reason on record');
}
