import { beforeAll, describe, expect, it } from 'vitest';
import { z } from 'zod';
import { operations } from '#edge/api/operations/operations.ts';
import { type Answer, type ScriptedOperations, useApi } from '#test/api/test-api.ts';

/** There are no engines: only the routes count. */
const noEngines: ScriptedOperations = {
  definitions: () => [],
  list: () => [],
  hosts: () => [],
  orphans: () => [],
  files: () => ({ readAtMs: 0, refused: null, leftOut: [] }),
  differences: () => [],
  pendingPrices: () => [],
  async *logs() {},
  command: () => Promise.resolve(() => Promise.resolve()),
  reload: () => Promise.resolve({ ok: true, added: [], changed: [], removed: [] }),
};

const reconciler = { reconcile: () => Promise.reject(new Error('nothing is reconciled here')) };

const api = useApi({ operations: noEngines, reconciler });
let document: Answer['body'];
beforeAll(async () => {
  document = (await api().ask('/openapi.json', { key: null })).body;
});

interface Described {
  readonly operationId?: string;
  readonly summary?: string;
  readonly description?: string;
  readonly tags?: readonly string[];
  readonly requestBody?: WithContent;
  readonly responses: Record<string, WithContent>;
}

interface WithContent {
  readonly content?: Record<string, { readonly schema: object; readonly example?: unknown }>;
}

/** All operations by method and path. */
function operationsOf({ paths }: Answer['body']): [route: string, operation: Described][] {
  return Object.entries<Record<string, Described>>(paths).flatMap(([path, at]) =>
    Object.entries(at).map(([method, operation]): [string, Described] => [
      `${method.toUpperCase()} ${path}`,
      operation,
    ]),
  );
}

/** The bodies that an operation accepts and answers with. */
const bodiesOf = ({ requestBody, responses }: Described) =>
  [requestBody, ...Object.values(responses)].flatMap((body) => Object.entries(body?.content ?? {}));

/** The named schemas that a value refers to, and those that these refer to. */
function definitionsOf(value: unknown, schemas: Readonly<Record<string, unknown>>, found = new Map<string, unknown>()) {
  for (const [, name = ''] of JSON.stringify(value).matchAll(/"#\/components\/schemas\/(\w+)"/g)) {
    if (found.has(name)) continue;
    found.set(name, schemas[name]);
    definitionsOf(schemas[name], schemas, found);
  }
  return found;
}

/** Problems of an example, by the schema beside it. */
function problemsOf(schema: object, example: unknown, schemas: Readonly<Record<string, unknown>>): string[] {
  const whole = { ...schema, $defs: Object.fromEntries(definitionsOf(schema, schemas)) };
  const text = JSON.stringify(whole).replaceAll('#/components/schemas/', '#/$defs/');
  const { error } = z.fromJSONSchema(JSON.parse(text) as Parameters<typeof z.fromJSONSchema>[0]).safeParse(example);
  return (error?.issues ?? []).map(({ path, message }) => `${path.join('.')}: ${message}`);
}

describe('each operation of the OpenAPI document', () => {
  it('has an id that is unique as a function name', () => {
    const ids = operationsOf(document).map(([route, { operationId = '' }]) => ({ route, operationId }));
    const isOpenAis = (route: string): boolean =>
      /\/v1\/(?:organization\/|projects\/\{id\}\/(?:groups|roles|users)\b)/.test(route);
    const wrong = ids.filter(({ route, operationId }) => {
      const isCamel = /^[a-z]+(?:[A-Z][a-zA-Z0-9]*)+$/.test(operationId);
      return !isCamel && !(isOpenAis(route) && /^[a-z]+(?:-[a-z]+)+$|^CreateanAPIkey/.test(operationId));
    });
    expect(wrong).toEqual([]);
    const names = Map.groupBy(ids, ({ operationId }) => operationId.replaceAll('-', '').toLowerCase());
    expect([...names.values()].filter(({ length }) => length > 1)).toEqual([]);
  });

  it('has a short summary, a description and one declared tag', () => {
    const declared = document.tags.map(({ name }: { name: string }) => name);
    const wrong = operationsOf(document).filter(([, { summary = '', description = '', tags = [] }]) => {
      const isShort = /^[A-Z][a-z]+ [^.:]+$/.test(summary) && summary.split(' ').length <= 8;
      return !(isShort && /^[A-Z].*\.$/.test(description) && tags.length === 1 && declared.includes(tags[0]));
    });
    expect(wrong.map(([route, { summary, description, tags }]) => ({ route, summary, description, tags }))).toEqual([]);
    const used = new Set(operationsOf(document).flatMap(([, { tags = [] }]) => tags));
    expect([...used].toSorted()).toEqual(declared.toSorted());
    for (const tag of document.tags) expect(tag).toHaveProperty('description', expect.stringMatching(/^[A-Z].+/));
  });

  it('has an example that its schema accepts, unless the body is a file or empty', () => {
    const all = operationsOf(document).map(([route, operation]) => ({ route, bodies: bodiesOf(operation) }));
    const without = all.filter(({ bodies }) => bodies.every(([, media]) => !('example' in media)));
    const answered = without.map(({ route, bodies }) => [route, ...bodies.slice(0, -1).map(([type]) => type)]);
    // Operations without a body, or with only an image or a zip, share only the error with all others.
    expect(answered.filter(([, type]) => type !== undefined && !/^(?:image\/\*|application\/zip)$/.test(type))).toEqual(
      [],
    );
    const wrong = all.flatMap(({ route, bodies }) =>
      bodies
        .filter(([, media]) => 'example' in media)
        .map(([, media]) => ({ route, problems: problemsOf(media.schema, media.example, document.components.schemas) }))
        .filter(({ problems }) => problems.length > 0),
    );
    expect(wrong).toEqual([]);
  });

  it('has texts, and no texts exist without an operation', () => {
    const routes = operationsOf(document).map(([route]) => route);
    expect(routes.toSorted()).toEqual([...operations.keys()].toSorted());
  });
});
