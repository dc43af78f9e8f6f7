import { beforeAll, expect, it } from 'vitest';
import { type Endpoint, endpoints } from '#edge/inference/request/endpoints.ts';
import { nestedFields } from '#edge/inference/request/nested-fields.ts';
import { vllmVersions } from '#core/catalog/vllm-versions.ts';
import { type Description, describeVllm, fieldList } from '../../vllm/description.ts';

/** Conversations and what is compared have the same parts, single or in lists. */
function placeOf(place: string): string {
  return place.replace(
    /^(?:messages|input|query|queries|documents|items|data_[12]|text_[12])(?:\[\])*(?=\.|$)/,
    'messages[]',
  );
}

/** Each field with its place. */
function flat(fields: Readonly<Record<string, readonly string[]>>): string[] {
  const places = Object.entries(fields).map(([place, names]): [string, readonly string[]] => [placeOf(place), names]);
  return [...new Set(places.flatMap(([place, names]) => fieldList({ fields: { [place]: names } })))].toSorted();
}

let installed: Description;
beforeAll(async () => {
  installed = await describeVllm(process.env['VLLM_BIN'] ?? '');
});

/** The row of the table for the installed version, and the rows after it. */
function rows() {
  const { version } = installed;
  const at = vllmVersions.findIndex(({ minor }) => version.startsWith(`${minor}.`));
  expect(at, `${version} in src/core/catalog/vllm-versions.ts`).toBeGreaterThanOrEqual(0);
  return { until: vllmVersions.slice(0, at + 1), later: vllmVersions.slice(at + 1) };
}

const isRendering = ({ enginePath }: Endpoint): boolean => enginePath?.endsWith('/render') === true;

const named = (changes: readonly ({ readonly [name: string]: string } | undefined)[]): string[] =>
  changes.flatMap((change) => Object.keys(change ?? {}));

it('decides exactly the request fields of the tried versions', () => {
  const { until, later } = rows();
  const found = flat(installed.fields);
  expect(found.length).toBeGreaterThan(200);
  // Served with a flag only; it reads what /v1/responses reads.
  const [rendering, others] = [endpoints.filter(isRendering), endpoints.filter((one) => !isRendering(one))];
  const ofResponses = endpoints.find(({ path }) => path === '/v1/responses')?.fields ?? {};
  for (const { fields } of rendering) {
    expect(Object.keys(fields).filter((field) => !Object.hasOwn(ofResponses, field))).toEqual([]);
  }
  const tables: [string, object][] = [
    ...others.map(({ path, fields }): [string, object] => [path, fields]),
    ...Object.entries(nestedFields),
  ];
  const decided = flat(Object.fromEntries(tables.map(([place, fields]) => [place, Object.keys(fields)])));
  const missing = found.filter((field) => !decided.includes(field));
  expect(missing, 'fields that src/edge/inference/request/vllm-fields.ts has to decide').toEqual([]);
  const changed = [
    ...named(until.map(({ differs }) => differs.fields.gone)),
    ...named(later.map(({ differs }) => differs.fields.added)),
  ];
  expect(
    decided.filter((field) => !found.includes(field)),
    'fields that this version does not have',
  ).toEqual(changed.toSorted());
});

it('has the routes, metrics and arguments that the table names for it', () => {
  const { until, later } = rows();
  for (const part of ['routes', 'metrics', 'flags'] as const) {
    const has: readonly string[] = installed[part];
    expect(has).toEqual(expect.arrayContaining(named(until.map(({ differs }) => differs[part].added))));
    for (const name of named(later.map(({ differs }) => differs[part].added))) expect(has).not.toContain(name);
    for (const name of named(until.map(({ differs }) => differs[part].gone))) expect(has).not.toContain(name);
  }
});
