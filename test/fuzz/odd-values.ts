import fc from 'fast-check';

/** Values that nobody expects, and values changed anywhere in them. */

/** Values that may stand where something else is expected. */
const scalars: readonly unknown[] = [
  null,
  true,
  false,
  0,
  -1,
  1,
  1.5,
  8192,
  2 ** 31,
  2 ** 53,
  1e308,
  Infinity,
  NaN,
  '',
  ' ',
  'x',
  'latest',
  '../../etc/passwd',
  '/',
  '${HF_TOKEN}',
  '${NOT_THERE}',
  '${',
  '{port}',
  '{socket}',
  '__proto__',
  'constructor',
  'a\0b',
  'line\nline',
  '\u2028',
  '\ud800',
  'é🦙',
  '16gb',
  '0.1',
  '1e-7',
  '-0',
  'true',
  'null',
  '2026-01-01',
];

const oddScalar: fc.Arbitrary<unknown> = fc.oneof(
  { weight: 6, arbitrary: fc.constantFrom(...scalars) },
  { weight: 1, arbitrary: fc.string({ unit: 'binary', maxLength: 20 }) },
  { weight: 1, arbitrary: fc.double() },
  { weight: 1, arbitrary: fc.nat(40_000).map((length) => 'x'.repeat(length)) },
);

const oddKey = fc.constantFrom('x', '__proto__', 'constructor', 'toString', '<<', '', '0', 'é', 'a b', 'env', 'id');

export const oddValue: fc.Arbitrary<unknown> = fc.letrec((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    oddScalar,
    fc.array(tie('value'), { maxLength: 4 }),
    fc.array(fc.tuple(oddKey, tie('value')), { maxLength: 4 }).map((pairs) => memberMap(pairs)),
  ),
})).value;

/** A map whose keys may be any, `__proto__` among them. */
function memberMap(pairs: readonly (readonly [string, unknown])[]): object {
  const map = {};
  for (const [key, value] of pairs) Object.defineProperty(map, key, { value, enumerable: true, configurable: true });
  return map;
}

export type Change =
  | { readonly kind: 'remove'; readonly at: number }
  | { readonly kind: 'replace'; readonly at: number; readonly value: unknown }
  | { readonly kind: 'add'; readonly key: string; readonly value: unknown };

const change: fc.Arbitrary<Change> = fc.oneof(
  fc.record({ kind: fc.constant('remove' as const), at: fc.nat(63) }),
  fc.record({ kind: fc.constant('replace' as const), at: fc.nat(63), value: oddValue }),
  fc.record({ kind: fc.constant('add' as const), key: oddKey, value: oddValue }),
);

/** One to three changes. */
export function changesOf(): fc.Arbitrary<Change[]> {
  return fc.array(change, { minLength: 1, maxLength: 3 });
}

interface Place {
  readonly holder: object;
  readonly key: string;
}

/** Every member of every map and list within a value. */
function placesOf(value: unknown, depth = 0): Place[] {
  if (typeof value !== 'object' || value === null || depth > 6) return [];
  return Object.entries(value).flatMap(([key, member]) => [
    { holder: value, key },
    ...placesOf(member as unknown, depth + 1),
  ]);
}

/** The value with changes anywhere in it. */
export function changed(value: unknown, changes: readonly Change[]): unknown {
  const copy: unknown = structuredClone(value);
  for (const one of changes) {
    const places = placesOf(copy);
    if (one.kind === 'add') {
      if (typeof copy === 'object' && copy !== null) put({ holder: copy, key: one.key }, one.value);
      continue;
    }
    const place = places[one.at % Math.max(1, places.length)];
    if (place === undefined) continue;
    if (one.kind === 'replace') put(place, one.value);
    else if (Array.isArray(place.holder)) place.holder.splice(Number(place.key), 1);
    else Reflect.deleteProperty(place.holder, place.key);
  }
  return copy;
}

function put({ holder, key }: Place, value: unknown): void {
  Object.defineProperty(holder, key, { value, enumerable: true, configurable: true, writable: true });
}
