import { readFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { AppError } from '#base/errors.ts';
import type { ApiApp } from './app.ts';

/** The OpenAPI document of all routes, and a page to try them. Neither needs a key, neither loads from elsewhere. */

const info = {
  title: 'Headgate',
  version: '1',
  description:
    'An OpenAI-compatible gateway. Times are Unix seconds and money is a decimal string in USD, but for projects, ' +
    "which answer in the generic API's shape.",
};

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

/** Swagger UI sets styles inline and draws its icons from data URLs; all else comes from this server. */
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

/** To be called when every other route is there. */
export function registerDocs(app: ApiApp): void {
  app.openAPIRegistry.registerComponent('securitySchemes', 'bearer', {
    type: 'http',
    scheme: 'bearer',
    description: 'An API key: "Authorization: Bearer sk-hg-…"',
  });
  let document: string | null = null;
  app.get('/openapi.json', (context) => {
    document ??= JSON.stringify(app.getOpenAPI31Document({ openapi: '3.1.0', info }));
    return context.body(document, 200, { 'content-type': 'application/json' });
  });
  app.get('/docs', (context) =>
    context.body(page, 200, {
      'content-type': 'text/html; charset=utf-8',
      'content-security-policy': contentSecurityPolicy,
      'x-content-type-options': 'nosniff',
      'referrer-policy': 'no-referrer',
    }),
  );
  app.get('/docs/assets/:name', async (context) => {
    const asset = await readAsset(context.req.param('name'));
    if (asset === null) throw new AppError('not_found');
    return context.body(asset.body, 200, {
      'content-type': asset.type,
      'cache-control': 'public, max-age=3600',
      'x-content-type-options': 'nosniff',
    });
  });
}

async function readAsset(name: string): Promise<{ body: string | Uint8Array<ArrayBuffer>; type: string } | null> {
  if (name === 'start.js') return { body: startScript, type: 'text/javascript; charset=utf-8' };
  const type = Object.hasOwn(assetTypes, name) ? assetTypes[name] : undefined;
  if (type === undefined) return null;
  const folder = dirname(createRequire(import.meta.url).resolve('swagger-ui-dist/package.json'));
  return { body: new Uint8Array(await readFile(join(folder, name))), type };
}
