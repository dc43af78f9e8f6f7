import { expect, it } from 'vitest';
import { useGateway, type Body } from '#test/metering/recorded-usage.ts';

const bench = useGateway();
const values = ['%00', 'a%00b', '%ff', '9'.repeat(400), '9999-12-31T23:59:59Z', `key_${'f'.repeat(32)}`];
const required: Readonly<Record<string, string>> = { start_time: '1700000000' };

interface Parameter {
  readonly in: string;
  readonly name: string;
  readonly required?: boolean;
}

/** Paths with one hostile text each, in every parameter that the document has of them. */
function* askedOf(path: string, parameters: readonly Parameter[], projectId: string): Generator<string> {
  const query = parameters.filter((one) => one.in === 'query');
  for (const value of values) {
    for (const { in: place, name } of parameters) {
      const filled = path.replaceAll(/\{(\w+)\}/g, (_, key: string) => {
        if (place === 'path' && key === name) return value;
        return path.includes('/projects/{id}') && key === 'id' ? projectId : 'x';
      });
      const others = query.filter((one) => one.required === true && one.name !== name);
      const terms = others.map((one) => `${one.name}=${required[one.name] ?? '2026-05-04'}`);
      if (place === 'query') terms.push(`${encodeURIComponent(name)}=${value}`);
      if (place !== 'header') yield `${filled}?${terms.join('&')}`;
    }
  }
}

it('returns no 5xx for hostile queries and paths on every route', async () => {
  const { gateway } = bench;
  const document: Body = await (await gateway.request('/openapi.json')).json();
  const { projects, data = projects }: Body = await (await gateway.request('/v1/projects')).json();
  const faults: string[] = [];
  let asked = 0;
  for (const [path, { get, parameters = [] }] of Object.entries<Body>(document.paths)) {
    if (get === undefined) continue;
    for (const one of askedOf(path, [...parameters, ...(get.parameters ?? [])], data[0].id)) {
      const answer = await gateway.request(one);
      if (answer.status === 500) faults.push(one);
      await answer.body?.cancel();
      asked += 1;
    }
  }
  expect(faults).toEqual([]);
  expect(asked).toBeGreaterThan(1000);
});
