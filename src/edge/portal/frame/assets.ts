import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Hono } from 'hono';
import { AppError } from '#base/errors.ts';
import type { HttpEnv } from '#edge/http/http.ts';

/**
 * Styles, scripts and icons of the pages, from this server only. Their URLs contain a hash of their bytes, so that
 * browsers cache them indefinitely and still fetch changed files.
 */

interface Asset {
  readonly body: Buffer;
  readonly type: string;
  readonly path: string;
}

const own = (name: string): Buffer => readFileSync(new URL(`../assets/${name}`, import.meta.url));

/** Reads a file of an installed package. */
function installed(name: string, path: string): Buffer {
  const folder = dirname(createRequire(import.meta.url).resolve(`${name}/package.json`));
  return readFileSync(join(folder, path));
}

const hashOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('base64url').slice(0, 16);

function assetOf(name: string, body: Buffer, type: string): Asset {
  return { body, type, path: `/portal/assets/${hashOf(body)}/${name}` };
}

const script = 'text/javascript; charset=utf-8';

/** Serves modules that import each other by name from one folder, whose name is the hash of all their bytes. */
function modulesOf<Name extends string>(bodies: Readonly<Record<Name, Buffer>>): Readonly<Record<Name, Asset>> {
  const entries = Object.entries<Buffer>(bodies);
  const hash = hashOf(Buffer.concat(entries.map(([, body]) => body)));
  const assets = entries.map(([name, body]) => [name, { body, type: script, path: `/portal/assets/${hash}/${name}` }]);
  return Object.fromEntries(assets) as Record<Name, Asset>;
}

const playgroundParts = [
  'answer',
  'calls',
  'chat',
  'code',
  'conversation',
  'dom',
  'highlight',
  'highlighter',
  'image',
  'markdown',
  'messages',
  'models',
  'parts',
  'protocols',
  'responses',
  'settings',
  'store',
];
/** Languages of prismjs, each behind those that it extends. */
const languages = [
  'markup clike javascript css python bash json yaml sql typescript jsx tsx rust go java kotlin swift c cpp csharp',
  'php ruby lua r powershell hcl docker toml ini diff markdown',
].flatMap((line) => line.split(' '));

/** prismjs defines variables, and searches the page where it finds one. These lines make a module of it that does not. */
const prism = Buffer.concat([
  Buffer.from('const window = {};\n'),
  ...['core', ...languages].flatMap((name) => [
    installed('prismjs', `components/prism-${name}.min.js`),
    Buffer.from(';\n'),
  ]),
  Buffer.from('export { Prism };\n'),
]);

const playground = modulesOf({
  'playground.js': own('playground.js'),
  ...Object.fromEntries(playgroundParts.map((part) => [`playground-${part}.js`, own(`playground-${part}.js`)])),
  'prism.js': prism,
  'markdown-it.js': installed('markdown-it', 'dist/browser/markdown-it.esm.min.mjs'),
});

const charts = modulesOf({
  'chart.js': own('chart.js'),
  // The smallest build of uPlot defines a variable. This line makes a module of it.
  'uplot.js': Buffer.concat([installed('uplot', 'dist/uPlot.iife.min.js'), Buffer.from('\nexport default uPlot;\n')]),
});

const style = Buffer.concat([installed('uplot', 'dist/uPlot.min.css'), Buffer.from('\n'), own('portal.css')]);

export const assets = {
  style: assetOf('portal.css', style, 'text/css; charset=utf-8'),
  chart: charts['chart.js'],
  script: assetOf('portal.js', own('portal.js'), script),
  palette: assetOf('palette.js', own('palette.js'), script),
  lists: assetOf('lists.js', own('lists.js'), script),
  log: assetOf('log.js', own('log.js'), script),
  playground: playground['playground.js'],
  htmx: assetOf('htmx.js', installed('htmx.org', 'dist/htmx.min.js'), script),
  icon: assetOf('icon.svg', own('icon.svg'), 'image/svg+xml'),
  /** Shown for a stack whose own icon cannot be shown. */
  stack: assetOf('stack.svg', own('stack.svg'), 'image/svg+xml'),
  runs: assetOf('runs.js', own('runs.js'), script),
} as const;

const byPath: ReadonlyMap<string, Asset> = new Map(
  [...Object.values(assets), ...Object.values(playground), ...Object.values(charts)].map((asset) => [
    asset.path,
    asset,
  ]),
);

export function registerAssets(app: Hono<HttpEnv>): void {
  app.get('/portal/assets/:hash/:name', (context) => {
    const asset = byPath.get(context.req.path);
    if (asset === undefined) throw new AppError('not_found');
    const { body, type } = asset;
    // Sends the same buffer for every answer: a Response would copy it, and hold the copy while a slow client reads.
    context.env.outgoing
      .writeHead(200, {
        'content-type': type,
        'content-length': body.length,
        'cache-control': 'public, max-age=31536000, immutable',
        'x-content-type-options': 'nosniff',
        'cross-origin-resource-policy': 'same-origin',
        'x-request-id': context.get('requestId'),
      })
      .end(context.req.method === 'HEAD' ? undefined : body);
    return RESPONSE_ALREADY_SENT;
  });
}
