import { globSync, readFileSync } from 'node:fs';
import { parseSync, Visitor } from 'oxc-parser';
import { describe, expect, it } from 'vitest';
import { type Endpoint, endpoints } from '#edge/inference/request/endpoints.ts';

/** The table of endpoints is the only file of these rooms that may name one of their paths. */
const table = 'src/edge/inference/request/endpoints.ts';
const rooms = 'src/edge/{inference,observe}/**/*.ts';
const root = new URL('../..', import.meta.url).pathname;
const paths = endpoints.map(({ path }) => path);
/** Paths on engines that begin like those of the gateway. */
const enginePaths = endpoints.flatMap(({ enginePath = '' }: Endpoint) =>
  enginePath.startsWith('/v1/') ? enginePath : [],
);

/** The path of an endpoint, a text with it, or the beginning of one that tells some of them apart. */
function namesEndpoint(text: string): boolean {
  return paths.some((path) => text.includes(path) || (text.length > '/v1/'.length && path.startsWith(text)));
}

/** Endpoints' paths that a file names in its literals, templates and regular expressions; comments do not count. */
function namedIn(path: string, text: string): string[] {
  const { program, errors } = parseSync(path, text);
  const [error] = errors;
  if (error !== undefined) throw new Error(`${path} cannot be parsed: ${error.message}`);
  const texts: string[] = [];
  new Visitor({
    Literal: (literal) => {
      if ('regex' in literal) texts.push(literal.regex.pattern.replaceAll('\\/', '/').replaceAll('^', ''));
      else if (typeof literal.value === 'string') texts.push(literal.value);
    },
    TemplateLiteral: ({ quasis }) => {
      for (const { value } of quasis) texts.push(value.raw);
    },
  }).visit(program);
  return texts.filter(namesEndpoint);
}

describe('the paths of endpoints', () => {
  it.each([
    ["if (endpoint.path === '/v1/embeddings') read();"],
    ["const tasks = { '/v1/chat/completions': ['chat'] };"],
    ["if (path.startsWith('/v1/chat')) read();"],
    ['if (/^\\/v1\\/score$/.test(path)) read();'],
    ['switch (path) { case `/v1/rerank`: read(); }'],
  ])('are found in %s', (text) => {
    expect(namedIn('a.ts', text)).toHaveLength(1);
  });

  it('are not found in other routes, in sentences and in comments', () => {
    const text = "// As '/v1/embeddings'.\napp.get('/v1/models/:id', () => 'one of GET /v1/models');";
    expect(namedIn('a.ts', text)).toEqual([]);
  });

  it('are written in the table only', () => {
    const files = globSync(rooms, { cwd: root });
    expect(files).toContain(table);
    expect(namedIn(table, readFileSync(root + table, 'utf8')).toSorted()).toEqual(
      [...paths, ...enginePaths].toSorted(),
    );
    const named = files
      .filter((file) => file !== table)
      .flatMap((file) => namedIn(file, readFileSync(root + file, 'utf8')).map((text) => `${file}: ${text}`));
    expect(named).toEqual([]);
  });
});
