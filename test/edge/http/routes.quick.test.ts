import { Hono, type MiddlewareHandler } from 'hono';
import { describe, expect, it } from 'vitest';
import { createLog } from '#base/log.ts';
import { groupOf, type HttpEnv, installFallbacks } from '#edge/http/http.ts';

function createApp(): Hono<HttpEnv> {
  const app = new Hono<HttpEnv>();
  // Requests here have no connection to read a body from.
  const bare: MiddlewareHandler<HttpEnv> = (context, next) => {
    context.set('requestId', 'id');
    return next();
  };
  app.use(bare);
  const done = (): Response => new Response('done');
  app.post('/v1/keys/report', done);
  app.all('/v1/keys/report', (context) => context.notFound());
  app.get('/v1/keys/:id', done);
  app.patch('/v1/keys/:id', done);
  app.use('/v1/projects/*', (_context, next) => next());
  app.on('DELETE', '/v1/projects/:id', done);
  app.get('/v1/models/:id{.+}', done);
  app.post('/v1/engines/reload', done);
  app.get('/v1/engines/:id', done);
  app.get('/v1/a.b', done);
  installFallbacks(app, createLog('silent'));
  return app;
}

describe('a request without a matching route', () => {
  const app = createApp();
  const ask = (method: string, path: string) => app.request(path, { method });

  it.each([
    '/v1/keys',
    '/v1/keys/',
    '/v1/keys/x/y',
    '/v1/keys/report/x',
    '/v1/models',
    '/v1/models/',
    '/v1/axb',
    '/V1/keys/x',
    '/v1/projects',
    '/v1/projects/x/y',
    '/',
  ])('returns 404 at %s', async (path) => {
    const answer = await ask('PUT', path);
    expect([answer.status, answer.headers.get('allow')]).toEqual([404, null]);
  });

  it.each([
    ['/v1/keys/x', 'GET, HEAD, PATCH'],
    ['/v1/keys/%72eport', 'POST'],
    ['/v1/keys/report', 'POST'],
    ['/v1/projects/x', 'DELETE'],
    ['/v1/models/a', 'GET, HEAD'],
    ['/v1/models/a/b/c', 'GET, HEAD'],
    ['/v1/engines/reload', 'GET, HEAD, POST'],
    ['/v1/engines/x', 'GET, HEAD'],
    ['/v1/a.b', 'GET, HEAD'],
  ])('returns 405 at %s, with Allow: %s', async (path, allow) => {
    for (const method of ['PUT', 'PROPFIND']) {
      const answer = await ask(method, path);
      expect([answer.status, answer.headers.get('allow')]).toEqual([405, allow]);
    }
  });

  it('is not handled by a parameter route when a literal route has the path', async () => {
    expect((await ask('GET', '/v1/keys/report')).status).toBe(405);
    expect((await ask('GET', '/v1/keys/reports')).status).toBe(200);
  });

  it.each([
    ['/v1/projects/x/y', 'details'],
    ['/v1/projects', 'details'],
    ['/v1/projectsx', 'type'],
    ['/v1', 'type'],
    ['/nothing', 'type'],
    ['/api/v1', 'details'],
    ['/api/v1/nothing', 'details'],
    ['/api/v1x', 'type'],
    ['/api', 'type'],
  ])('has the error shape of its group: %s has "%s"', async (path, member) => {
    const { error } = (await (await ask('GET', path)).json()) as { error: object };
    expect(Object.keys(error)).toContain(member);
    expect(groupOf(path).errorShape).toBe(member === 'details' ? 'generic' : 'openai');
  });
});
