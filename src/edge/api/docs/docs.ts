import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { AppError } from '#base/errors.ts';
import type { ApiApp } from '#edge/api/shared/shared.ts';
import type { HttpContext } from '#edge/http/http.ts';
import { describeRoutes, requireDocumented } from './document.ts';

export { registerInferenceDocs } from './inference-docs.ts';

/** Serves the OpenAPI document of all routes, and a page to try them. Neither needs a key or loads external files. */

const assetTypes: Readonly<Record<string, string>> = {
  'swagger-ui.css': 'text/css; charset=utf-8',
  'swagger-ui-bundle.js': 'text/javascript; charset=utf-8',
  'favicon-32x32.png': 'image/png',
};

const startScript = `SwaggerUIBundle({
  url: '/openapi.json',
  dom_id: '#docs',
  deepLinking: true,
  validatorUrl: null,
});
`;

const page = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>Headgate API</title>
    <link rel="icon" href="/docs/assets/favicon-32x32.png">
    <link rel="stylesheet" href="/docs/assets/swagger-ui.css">
  </head>
  <body>
    <div id="docs"></div>
    <script src="/docs/assets/swagger-ui-bundle.js"></script>
    <script src="/docs/assets/start.js"></script>
  </body>
</html>
`;

/** Policy for Swagger UI, which sets inline styles and draws icons from data URLs; the rest is from this server. */
const contentSecurityPolicy = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join('; ');

/** Registers the document and its page. Call this after all other routes are registered. */
export function registerDocs(app: ApiApp): void {
  requireDocumented(app);
  app.openAPIRegistry.registerComponent('securitySchemes', 'bearer', {
    type: 'http',
    scheme: 'bearer',
    description: 'API key, sent as "Authorization: Bearer sk-hg-…"',
  });
  let document: Buffer | null = null;
  app.get('/openapi.json', (context) => {
    document ??= Buffer.from(JSON.stringify(describeRoutes(app)));
    return sendShared(context, document, { 'content-type': 'application/json' });
  });
  app.get('/docs', (context) =>
    context.body(page, 200, {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': contentSecurityPolicy,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
    }),
  );
  const assets = readAssets();
  app.get('/docs/assets/:name', (context) => {
    const asset = assets.get(context.req.param('name'));
    if (asset === undefined) throw new AppError('not_found');
    return sendShared(context, asset.body, {
      'content-type': asset.type,
      'cache-control': 'public, max-age=3600',
      'x-content-type-options': 'nosniff',
    });
  });
}

/**
 * Sends bytes that all answers share. A Response would copy them for each answer, and keep the copy until its client
 * has read them.
 */
function sendShared(context: HttpContext, body: Buffer, headers: Readonly<Record<string, string>>): Response {
  const own = { 'x-request-id': context.get('requestId'), 'content-length': body.length };
  context.env.outgoing.writeHead(200, { ...headers, ...own }).end(body);
  return RESPONSE_ALREADY_SENT;
}

interface Asset {
  readonly body: Buffer;
  readonly type: string;
}

/** Reads all assets once. */
function readAssets(): ReadonlyMap<string, Asset> {
  const folder = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));
  const files = Object.entries(assetTypes).map(([name, type]): [string, Asset] => {
    return [name, { body: readFileSync(join(folder, name)), type }];
  });
  return new Map([...files, ['start.js', { body: Buffer.from(startScript), type: 'text/javascript; charset=utf-8' }]]);
}
