import { describe, expect, it } from 'vitest';
import { type Answer, useApi } from './support.ts';

const api = useApi();
const ask = (path: string): Promise<Answer> => api().ask(path, { key: null });

interface Operation {
  readonly security?: unknown[];
  readonly responses: Record<string, unknown>;
}

/** Every "$ref" below a value. */
function references(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([key, below]) => (key === '$ref' ? [String(below)] : references(below)));
}

describe('the OpenAPI document', () => {
  it('is 3.1, needs no key, and all its references lead somewhere', async () => {
    const { status, headers, body } = await ask('/openapi.json');
    expect([status, headers.get('content-type'), body.openapi]).toEqual([200, 'application/json', '3.1.0']);
    const found = references(body);
    expect(found.length).toBeGreaterThan(20);
    for (const reference of found) {
      const name = /^#\/components\/schemas\/(.+)$/.exec(reference)?.[1] ?? 'none';
      expect(body.components.schemas).toHaveProperty([name]);
    }
  });

  it('has every route that answers, and says which of them need a key', async () => {
    const { body } = await ask('/openapi.json');
    const routes = Object.entries<Record<string, Operation>>(body.paths).flatMap(([path, operations]) =>
      Object.entries(operations).map(([method, operation]) => ({ path, method: method.toUpperCase(), operation })),
    );
    expect(routes.map(({ path, method }) => `${method} ${path}`)).toEqual(
      expect.arrayContaining([
        'POST /v1/chat/completions',
        'POST /v1/completions',
        'POST /v1/embeddings',
        'POST /v1/rerank',
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
    const open = routes.filter(({ operation }) => operation.security === undefined);
    expect(open.map(({ path }) => path).toSorted()).toEqual(['/v1/keys/report', '/v1/pricing']);
    expect(body.components.securitySchemes.bearer).toMatchObject({ type: 'http', scheme: 'bearer' });
    const ownRoutes = routes.filter(
      ({ path }) => !/completions|embeddings|rerank|score|audio|models|pricing/.test(path),
    );
    for (const { path, method, operation } of ownRoutes.filter((route) => route.operation.security !== undefined)) {
      const { status } = await api().ask(path.replace('{id}', 'x'), { method, key: null });
      expect([method, path, status]).toEqual([method, path, 401]);
      expect(operation.responses).toHaveProperty('default');
    }
  });
});

describe('the page', () => {
  it('needs no key, and loads from this server alone', async () => {
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

  it('hands out nothing but its own parts', async () => {
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
