import fc from 'fast-check';
import { mostly, pick, pickOf } from './pick.ts';
import { applyCut, type Cut, cutsOf } from './byte-cuts.ts';

/** Connections of clients that do not keep to HTTP, or to the API. */

export interface Connection {
  /** As it is written, in latin1; with names such as sk-INFERENCE for what only the gateway knows. */
  readonly parts: readonly string[];
  /**
   * The client's next step: waits, closes only its side, or resets. One that waits has asked for the end of the
   * connection with its last request, which the gateway may have taken for something else.
   */
  readonly after: 'wait' | 'half-close' | 'reset';
}

export interface Route {
  readonly method: string;
  /** As the document has it: `/v1/keys/{id}`. */
  readonly path: string;
}

const oddMethods = pickOf(
  ['GET', 'POST', 'HEAD', 'OPTIONS', 'PUT', 'PATCH', 'DELETE', 'TRACE', 'CONNECT', 'PROPFIND', 'QUERY', 'M-SEARCH'],
  ['get', 'G', 'PRI', 'GET ', ' GET', 'GE\tT', 'GET\0', 'é', '', 'X'.repeat(300)],
);

const oddParts = pickOf(
  ['key_SPARE', 'org_OWN', 'proj_OWN', 'x', '', '.', '..', '%2e%2e', '%00', '%', '%zz', '%ff', '%F0%9F%A6%99', 'a%2Fb'],
  ['é', ' ', '\t', '\0', '"', "'", '<', '\\', '*', ':id', '{id}', 'null', '-1', '0', 'a'.repeat(2000), 'a;b', 'a:b'],
  ['__proto__', 'constructor', '019ab1c2-d3e4-7f00-8a1b-2c3d4e5f6071', 'key_019ab1c2d3e47f008a1b2c3d4e5f6071'],
);

const oddQueries = pickOf(
  ['', '?', '?limit=1', '?limit=0', '?limit=99999999999', '?limit=1&limit=2', '?cursor=x', '?cursor=bnVsbA', '?x=y'],
  ['?limit=%31', '?task_type=chat', '?task_type=', '?start=0&end=1', '?group_by=model', '?status=active', '?=', '?&&'],
  ['?%', '?%00=%00', '?a[b]=c', '?__proto__[x]=1', '?limit', '#x', '??', '?start=1e3', '?tail=5&follow=1', '?follow=1'],
  ['?outcome=completed', '?start=99999999999999&end=-1', '?bucket=hour', '?cursor=AAAA', '?key_id=key_SPARE'],
);

const otherTargets = pickOf(
  ['/', '*', '//', '///v1/models', '/v1//keys', '/v1/models/../keys', '/./v1/models', '/v1/%6dodels', '/V1/models'],
  ['http://headgate/v1/models', 'https://other.example/v1/models', 'http://', 'http://u:p@x/v1/models', 'x', ''],
  ['headgate:80', '/v1/models HTTP/1.1', '/v1/models?a b', '/\u0000', '/é', '\\v1\\models', 'ftp://x/', 'http:///x'],
  ['/metrics', '/healthz', '/readyz', '/docs', '/openapi.json', '/docs/assets/swagger-ui.css', '/docs/assets/..%2f'],
  ['/docs/assets/../../package.json', '/api/v1/projects', '/favicon.ico', '/.env', '/v1/responses', '/v1/files'],
  [`/${'a/'.repeat(400)}`, `/v1/models/${'b'.repeat(17_000)}`, '/v1/engines', '/v1/audio/transcriptions'],
);

function targetsOf(path: string): fc.Arbitrary<string> {
  const filled = fc
    .array(oddParts, { minLength: 4, maxLength: 4 })
    .map((parts) => path.replace(/\{[^}]*\}/g, () => parts[0] ?? ''));
  return fc.tuple(filled, mostly(fc.constant(''), oddQueries, 2)).map(([target, query]) => target + query);
}

const authorizations = mostly(
  pick('Bearer sk-INFERENCE', 'Bearer sk-MANAGEMENT'),
  pickOf(
    ['', 'Bearer', 'Bearer ', 'bearer sk-INFERENCE', 'Bearer  sk-INFERENCE', 'Bearer sk-INFERENCE x', 'Basic eDp5'],
    ['sk-INFERENCE', 'Bearer sk-hg-000000000000-x', 'Bearer é', 'Bearer \0', `Bearer ${'x'.repeat(9000)}`, 'Bearer ,'],
  ),
  8,
);

const headerNames = pickOf(
  ['content-type', 'content-encoding', 'content-length', 'transfer-encoding', 'host', 'expect', 'upgrade', 'te'],
  ['connection', 'authorization', 'x-forwarded-for', 'x-forwarded-host', 'traceparent', 'tracestate', 'cookie'],
  ['idempotency-key', 'x-client-request-id', 'x-request-id', 'x-project-id', 'x-headgate-max-cost', 'range', 'via'],
  ['x-headgate-dry-run', 'accept', 'accept-encoding', 'if-none-match', 'trailer', 'keep-alive', 'http2-settings'],
  ['x-http-method-override', 'origin', 'access-control-request-method', 'sec-websocket-key', 'forwarded', 'date'],
  ['__proto__', 'constructor', 'X-'.repeat(500)],
);
const brokenNames = pick('Transfer-Encoding ', ' host', 'x y', 'é', '', ':', 'x\0y', 'host\t');

const headerValues = pickOf(
  ['', ' ', 'x', '0', '1', '-1', '+5', '0x10', '1e3', '5, 5', '5,6', '99999999999999999999', '9007199254740993', 'é'],
  [
    'chunked',
    'identity',
    'gzip, chunked',
    'chunked, chunked',
    'chunked, identity',
    'Chunked',
    '\x0bchunked',
    'xchunked',
  ],
  ['close', 'keep-alive', 'close, keep-alive', 'upgrade', 'Upgrade, HTTP2-Settings', 'websocket', 'h2c', 'TLS/1.0'],
  ['100-continue', '100-Continue', '200-ok', 'application/json', 'text/plain', 'application/json; charset=utf-16'],
  ['application/json;', 'APPLICATION/JSON', 'gzip', 'deflate', 'br', 'identity, gzip', '*/*', 'bytes=0-1', 'bytes=-'],
  ['headgate', 'a, b', 'a:b:c', '[::1', 'x y', '127.0.0.2', '::1', '1.2.3.4, 5.6.7.8', 'for="_x"', 'proj_OWN', 'null'],
  ['0.01', '-0.01', '1e-3', 'NaN', 'true', 'false', 'TRUE', 'key-1', 'k'.repeat(256), 'k'.repeat(255), '\t'],
  [`00-${'a'.repeat(32)}-${'b'.repeat(16)}-01`, `00-${'0'.repeat(32)}-${'b'.repeat(16)}-01`, '00-x', 'a=1,b=2', '"'],
  ['x'.repeat(9000), '\x80\xff', 'a\r\nx-injected: 1'],
);
const brokenValues = pick('a\0b', 'a\rb', 'a\nb', 'a\r\n b', 'x'.repeat(17_000), '\x7f');

const oddHeader = fc.tuple(mostly(headerNames, brokenNames, 15), mostly(headerValues, brokenValues, 12));

const chat = '{"model":"chat","messages":[{"role":"user","content":"Hello"}],"max_tokens":2}';
const bodies = pickOf(
  [chat, chat, chat, chat.replace('{', '{"stream":true,'), chat.replace('"chat"', '"nothing"'), '', '{}', '[]', 'null'],
  [
    '{"model":"chat"',
    '{"name":"x"}',
    '{"name":"\\ud800"}',
    '{"secret":"x"}',
    '{"model":"embed","input":"x"}',
    '{"a":1}',
  ],
  ['{"model":"chat","prompt":"Hello","max_tokens":2}', '{"store_requests":true}', '{"amount":"1","reference":"x"}'],
  ['\ufeff{}', '\0', '{"model":"chat","max_tokens":1e99}', '{"name":"x","name":"y"}', '{"__proto__":{"x":1}}', '"x"'],
  ['{"archived":true}', '{"name":""}', '{"requests_per_minute":-1}', '{"query":"a","documents":["b"],"model":"chat"}'],
);

interface Framed {
  /** With line ends. */
  readonly headers: string;
  readonly body: string;
}

const chunkSizes = pick<(length: number) => string>(
  (length) => length.toString(16),
  (length) => length.toString(16).toUpperCase(),
  (length) => `000${length.toString(16)}`,
  (length) => `${length.toString(16)};name="value"`,
  (length) => `${length.toString(16)} `,
  (length) => `0x${length.toString(16)}`,
  (length) => `${(length + 1).toString(16)}`,
  (length) => `-${length.toString(16)}`,
  () => 'FFFFFFFFFFFFFFFF',
  () => 'ffffffff',
  () => '',
  () => 'g',
);

const usualSize = (length: number): string => length.toString(16);

function chunked(body: string, pieces: number, size: (length: number) => string, end: string): string {
  const length = Math.max(1, Math.ceil(body.length / pieces));
  let framed = '';
  for (let at = 0; at < body.length; at += length) {
    const piece = body.slice(at, at + length);
    framed += `${size(piece.length)}\r\n${piece}\r\n`;
  }
  return framed + end;
}

const frames: fc.Arbitrary<(body: string) => Framed> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.constant((body: string) => ({ headers: `content-length: ${body.length}\r\n`, body })),
  },
  {
    weight: 3,
    arbitrary: fc
      .tuple(
        fc.integer({ min: 1, max: 5 }),
        mostly(fc.constant(usualSize), chunkSizes, 3),
        mostly(
          fc.constant('0\r\n\r\n'),
          pick(
            '0\r\nx-trailer: y\r\n\r\n',
            '0\r\n',
            '',
            '0\n\n',
            '00\r\n\r\n',
            '0;x\r\n\r\n',
            '0\r\ncontent-length: 5\r\n\r\n',
          ),
          3,
        ),
        mostly(fc.constant(''), pick('trailer: x-trailer\r\n', 'content-length: 5\r\n', 'content-length: 0\r\n'), 3),
      )
      .map(([pieces, size, end, more]) => (body: string) => ({
        headers: `transfer-encoding: chunked\r\n${more}`,
        body: chunked(body, pieces, size, end),
      })),
  },
  {
    weight: 2,
    arbitrary: pick<(body: string) => Framed>(
      (body) => ({ headers: '', body }),
      (body) => ({ headers: `content-length: ${body.length + 5}\r\n`, body }),
      (body) => ({ headers: `content-length: ${Math.max(0, body.length - 5)}\r\n`, body }),
      (body) => ({ headers: `content-length: ${body.length}\r\ncontent-length: ${body.length}\r\n`, body }),
      (body) => ({ headers: `content-length: ${body.length}\r\ncontent-length: 1\r\n`, body }),
      (body) => ({ headers: `content-length: ${body.length}\r\nexpect: 100-continue\r\n`, body }),
      (body) => ({ headers: `content-length: 99999999999\r\n`, body }),
      (body) => ({ headers: `content-length: ${body.length}\r\ncontent-encoding: gzip\r\n`, body }),
    ),
  },
);

function requestsTo(routes: readonly Route[]): fc.Arbitrary<string> {
  const known = fc
    .constantFrom(...routes)
    .chain(({ method, path }) => fc.tuple(mostly(fc.constant(method), oddMethods, 5), targetsOf(path)));
  const line = mostly(known, fc.tuple(oddMethods, otherTargets), 5);
  return fc
    .record({
      line,
      version: mostly(
        fc.constant('HTTP/1.1'),
        pick('HTTP/1.0', 'HTTP/2.0', 'HTTP/0.9', 'HTTP/1.2', 'http/1.1', '', 'x'),
        12,
      ),
      host: mostly(
        fc.constant('host: headgate\r\n'),
        pick('', 'host: a\r\nhost: b\r\n', 'Host:\r\n', 'host: a b\r\n'),
        10,
      ),
      authorization: authorizations,
      type: mostly(
        fc.constant('application/json'),
        pick('', 'text/plain', 'application/json; x', 'multipart/form-data'),
        6,
      ),
      odd: mostly(fc.constant<[string, string][]>([]), fc.array(oddHeader, { minLength: 1, maxLength: 3 }), 2),
      body: bodies,
      frame: frames,
    })
    .map(({ line: [method, target], version, host, authorization, type, odd, body, frame }) => {
      const framed = ['GET', 'HEAD', 'DELETE'].includes(method) ? { headers: '', body: '' } : frame(latin1(body));
      const more = odd.map(([name, value]) => `${name}: ${value}\r\n`).join('');
      const head = `${host}authorization: ${authorization}\r\ncontent-type: ${type}\r\n${more}${framed.headers}`;
      return `${latin1(`${method} ${target} ${version}\r\n${head}`)}\r\n${framed.body}`;
    });
}

const latin1 = (text: string): string => Buffer.from(text).toString('latin1');

/** The request with which a client says that it wants no more. */
const last = 'GET /healthz HTTP/1.1\r\nhost: headgate\r\nconnection: close\r\n\r\n';

const rawSnippets = pickOf(
  [
    '\r\n',
    '\n',
    '\r',
    '\0',
    ' ',
    '\t',
    '\r\n\r\n',
    ':',
    'HTTP/1.1',
    'content-length: 3\r\n',
    'transfer-encoding: chunked\r\n',
  ],
  [
    'GET / HTTP/1.1\r\n\r\n',
    'x'.repeat(70_000),
    '\x16\x03\x01\x02\x00\x01\x00',
    'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n',
    '\u00ff',
  ],
);

function connectionsTo(routes: readonly Route[]): fc.Arbitrary<Connection> {
  return fc
    .record({
      requests: fc.array(requestsTo(routes), { minLength: 1, maxLength: 3 }),
      cuts: fc.oneof({ weight: 5, arbitrary: fc.constant<Cut[]>([]) }, { weight: 2, arbitrary: cutsOf(rawSnippets) }),
      end: mostly(fc.constant(1), fc.double({ min: 0, max: 1, noNaN: true }), 5),
      splits: mostly(fc.constant<number[]>([]), fc.array(fc.nat(65_535), { maxLength: 4 }), 3),
      after: fc.oneof(
        { weight: 8, arbitrary: fc.constant('wait' as const) },
        { weight: 2, arbitrary: fc.constant('half-close' as const) },
        { weight: 1, arbitrary: fc.constant('reset' as const) },
      ),
    })
    .map(({ requests, cuts, end, splits, after }) => {
      const bytes = cuts.reduce(applyCut, Buffer.from(requests.join(''), 'latin1')).toString('latin1');
      const text = end === 1 ? bytes + (after === 'wait' ? last : '') : bytes.slice(0, Math.floor(bytes.length * end));
      const at = [...new Set(splits.map((split) => split % (text.length + 1)))].toSorted((a, b) => a - b);
      return { parts: [0, ...at].map((from, index) => text.slice(from, at[index] ?? text.length)), after };
    });
}

/** Some connections at once. */
export function connectionCases(routes: readonly Route[]): fc.Arbitrary<readonly Connection[]> {
  return fc.array(connectionsTo(routes), { minLength: 1, maxLength: 8 });
}
