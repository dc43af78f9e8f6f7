import { describe, expect, it } from 'vitest';
import { createApiApp } from '#edge/api/shared/app.ts';
import { requireDocumented } from '#edge/api/docs/document.ts';
import { type Answer, useApi } from '#test/api/test-api.ts';

const api = useApi();
const ask = (path: string): Promise<Answer> => api().ask(path, { key: null });

interface Operation {
  readonly security?: unknown[];
  readonly parameters?: readonly { readonly name: string; readonly in: string; readonly required?: boolean }[];
  readonly responses: Record<string, { readonly headers?: Record<string, unknown> }>;
}

interface Tagged {
  readonly tags: readonly string[];
  readonly responses: { readonly default: object };
}

/** Every "$ref" below a value. */
function references(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, below]) => (key === '$ref' ? [String(below)] : references(below)));
}

/** Members of every "allOf" below a value. */
function allOfs(value: unknown): { type?: unknown }[][] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, below]) => [...(key === 'allOf' ? [below] : []), ...allOfs(below)]);
}

describe('the OpenAPI document', () => {
  it('is OpenAPI 3.1, needs no key, and all its references resolve', async () => {
    const { status, headers, body } = await ask('/openapi.json');
    expect([status, headers.get('content-type'), body.openapi]).toEqual([200, 'application/json', '3.1.0']);
    const found = references(body);
    expect(found.length).toBeGreaterThan(20);
    for (const reference of found) {
      const name = /^#\/components\/schemas\/(.+)$/.exec(reference)?.[1] ?? 'none';
      expect(body.components.schemas).toHaveProperty([name]);
    }
  });

  it('requires no value to be an object and null at the same time', async () => {
    const { body } = await ask('/openapi.json');
    const contradictions = allOfs(body).filter(
      (parts) => references(parts).length > 0 && parts.some(({ type }) => Array.isArray(type) && type.includes('null')),
    );
    expect(contradictions).toEqual([]);
  });

  it('declares nullable fields as nullable', async () => {
    const { schemas } = (await ask('/openapi.json')).body.components;
    const { node_hour: price, effective_to: moment } = schemas.CreateRateCard.properties;
    const { currency } = schemas.PatchBillingCurrency.properties;
    expect([price.type, moment.type, currency.type]).toEqual(Array.from({ length: 3 }, () => ['string', 'null']));
  });

  it('declares one error shape for all routes of a tag', async () => {
    const { body } = await ask('/openapi.json');
    const operations = Object.entries<Record<string, Tagged>>(body.paths).flatMap(([path, of]) =>
      Object.values(of).map(({ tags: [tag = ''], responses }) => ({ path, tag, shape: references(responses.default) })),
    );
    // Models are asked in the words of two vendors.
    const ours = operations.filter(({ tag }) => tag !== 'Inference');
    const mixed = [...Map.groupBy(ours, ({ tag }) => tag)].filter(
      ([, of]) => new Set(of.flatMap(({ shape }) => shape)).size > 1,
    );
    expect(mixed.map(([tag, of]) => [tag, of.map(({ path, shape }) => `${path} ${shape.join()}`)])).toEqual([]);
    expect(new Set(ours.flatMap(({ shape }) => shape)).size).toBe(2);
  });

  it('contains every route, and says which ones need a key', async () => {
    const { body } = await ask('/openapi.json');
    const routes = Object.entries<Record<string, Operation>>(body.paths).flatMap(([path, operations]) =>
      Object.entries(operations).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
    );
    expect(routes.map(({ path, method }) => `${method} ${path}`)).toEqual(
      expect.arrayContaining([
        'POST /v1/chat/completions',
        'POST /v1/completions',
        'POST /v1/messages',
        'POST /v1/messages/count_tokens',
        'POST /v1/tokenize',
        'POST /v1/detokenize',
        'POST /v1/embeddings',
        'POST /v1/rerank',
        'POST /v1/responses',
        'POST /v1/responses/input_tokens',
        'GET /v1/responses/{id}',
        'DELETE /v1/responses/{id}',
        'GET /v1/responses/{id}/input_items',
        'POST /v1/score',
        'GET /v1/models',
        'GET /v1/models/{id}',
        'GET /v1/pricing',
        'POST /v1/keys',
        'GET /v1/keys',
        'GET /v1/keys/{id}',
        'PATCH /v1/keys/{id}',
        'DELETE /v1/keys/{id}',
        'POST /v1/keys/report',
        'POST /v1/organizations',
        'GET /v1/organizations',
        'POST /api/v1/projects/{id}/archive',
        'PATCH /v1/projects/{id}',
        'GET /v1/wallet',
        'POST /v1/wallet/credits',
        'GET /v1/usage/requests',
      ]),
    );
    const open = routes.filter(({ operation }) => operation.security?.length === 0);
    expect(open.map(({ path }) => path).toSorted()).toEqual(['/v1/keys/report', '/v1/pricing', '/v1/statement-key']);
    expect(body.components.securitySchemes.bearer).toMatchObject({ type: 'http', scheme: 'bearer' });
    for (const { path, operation } of routes) expect([path, operation.responses]).toHaveProperty('1.default');
    const ownRoutes = routes.filter(
      ({ path }) =>
        !/completions|responses|messages|tokenize|embeddings|rerank|score|audio|images|moderations|models|pricing/.test(
          path,
        ),
    );
    for (const { path, method } of ownRoutes.filter((route) => !open.includes(route))) {
      const { status } = await api().ask(path.replace('{id}', 'x'), { method, key: null });
      expect([method, path, status]).toEqual([method, path, 401]);
    }
  });
});

describe('the document and the routes', () => {
  it('agree on methods, error shapes and hourly limits', async () => {
    const { body } = await ask('/openapi.json');
    const own = Object.entries<Record<string, Operation>>(body.paths).filter(
      ([path]) =>
        !/completions|responses|messages|tokenize|embeddings|rerank|score|audio|images|moderations|models|pricing/.test(
          path,
        ),
    );
    expect(own.length).toBeGreaterThan(15);
    for (const [path, operations] of own) {
      const counted = path.startsWith('/api/v1') || /^\/v1\/(?:projects|users)\b/.test(path);
      const isOpenAis = /^\/v1\/projects\/\{id\}\/(?:groups|roles|users)\b/.test(path);
      const generic = (counted && !isOpenAis) || /^\/v1\/(?:billing|clusters|orgs|runner|runs|stacks)\b/.test(path);
      const answer = await api().ask(path.replace('{id}', 'x'), { method: 'PROPFIND' });
      const methods = Object.keys(operations).map((method) => method.toUpperCase());
      const allow = [...methods, ...(methods.includes('GET') ? ['HEAD'] : [])].toSorted().join(', ');
      expect([path, answer.status, answer.headers.get('allow')]).toEqual([path, 405, allow]);
      expect([path, 'details' in answer.body.error]).toEqual([path, generic]);
      expect([path, answer.headers.has('x-ratelimit-limit')]).toEqual([path, counted]);
      for (const { responses } of Object.values(operations)) {
        const shape = `#/components/schemas/${generic ? 'GenericError' : 'Error'}`;
        expect([path, references(responses['default'])]).toEqual([path, [shape]]);
      }
    }
  });

  it('reject an app with a route that the document lacks', () => {
    const app = createApiApp();
    app.get('/docs', (context) => context.text(''));
    expect(() => requireDocumented(app)).not.toThrow();
    app.get('/v1/secrets/:id{.+}', (context) => context.text(''));
    expect(() => requireDocumented(app)).toThrow('the route GET /v1/secrets/{id} is not in the OpenAPI document');
  });
});

const limitHeaders = [
  'X-RateLimit-Limit',
  'X-RateLimit-Remaining',
  'X-RateLimit-Reset',
  ...['requests', 'tokens'].flatMap((of) => ['limit', 'remaining', 'reset'].map((what) => `x-ratelimit-${what}-${of}`)),
];

describe('the headers in the document', () => {
  const headersOf = ({ responses }: Operation, status: string): string[] =>
    Object.keys(responses[status]?.headers ?? {}).toSorted();

  it.each(['/v1/chat/completions', '/v1/completions', '/v1/responses', '/v1/messages', '/v1/embeddings'])(
    'are complete for %s',
    async (path) => {
      const { body } = await ask('/openapi.json');
      const operation: Operation = body.paths[path].post;
      const asked = operation.parameters?.filter(({ in: place }) => place === 'header') ?? [];
      expect(asked.map(({ name }) => name).toSorted()).toEqual([
        'Idempotency-Key',
        'X-Client-Request-Id',
        'X-Project-ID',
        'x-headgate-allow-fallback',
        'x-headgate-dry-run',
        'x-headgate-max-cost',
      ]);
      expect(asked.filter(({ required }) => required === true)).toEqual([]);
      const spent = ['x-headgate-fallback', 'x-headgate-max-tokens'];
      const replay = ['idempotent-replayed', 'x-headgate-original-request-id'];
      const own = ['x-headgate-cache', ...replay, 'x-headgate-start', ...spent];
      expect(headersOf(operation, '200')).toEqual(['x-request-id', ...own, ...limitHeaders].toSorted());
      const refused = ['x-request-id', 'Retry-After', 'x-should-retry', ...limitHeaders];
      expect(headersOf(operation, 'default')).toEqual(refused.toSorted());
    },
  );

  it.each(['/v1/models', '/v1/models/{id}'])('match every response for %s', async (path) => {
    const { body } = await ask('/openapi.json');
    expect(headersOf(body.paths[path].get, '200')).toEqual(['x-request-id', ...limitHeaders].toSorted());
  });
});

describe('the API documentation page', () => {
  it('needs no key, and loads only from this server', async () => {
    const { status, headers, body } = await ask('/docs');
    expect([status, headers.get('content-type')]).toEqual([200, 'text/html; charset=utf-8']);
    expect(headers.get('content-security-policy')).toMatch(/^default-src 'none'; script-src 'self';/);
    expect(body).not.toMatch(/https?:/);
    expect(body).not.toMatch(/<script>|onload=/);
    const assets = [...String(body).matchAll(/(?:src|href)="([^"]+)"/g)].map(([, path]) => path ?? '');
    expect(assets).toHaveLength(4);
    for (const path of assets) {
      const asset = await ask(path);
      expect([path, asset.status, asset.headers.get('x-content-type-options')]).toEqual([path, 200, 'nosniff']);
      expect(asset.body.length).toBeGreaterThan(50);
    }
  });

  it('serves only its own files', async () => {
    for (const name of [
      'package.json',
      '..%2fpackage.json',
      '%2e%2e/package.json',
      'constructor',
      '__proto__',
      'index.html',
    ]) {
      expect((await ask(`/docs/assets/${name}`)).status).toBe(404);
    }
  });
});
