import fc from 'fast-check';
import { pick, pickOf } from './pick.ts';
import { endpoints } from '#edge/inference/request/endpoints.ts';
import { olderVllmFields } from '#edge/inference/request/vllm-fields.ts';
import { applyCut, type Cut, cutsOf } from './byte-cuts.ts';
import { changed, changesOf, oddValue } from './odd-values.ts';

/** Requests of the JSON routes: as the schemas have them, changed anywhere, and with bytes that are no JSON. */

export interface JsonRequest {
  readonly method: string;
  /** With `key_SPARE` for an id. */
  readonly path: string;
  readonly key: 'inference' | 'management' | 'admin';
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array;
}

const text = fc.oneof(pick('Hello', '', 'é 🦙', '\0', '\ud800', '\\u0000', '"}],"n":9'), fc.string({ maxLength: 30 }));
const schema = pick<unknown>(
  { type: 'object', properties: { a: { type: 'string', maxLength: 5 } }, required: ['a'] },
  { type: 'array', items: { type: 'integer' }, minItems: 1 },
  { $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/a' } } },
  { anyOf: [{ type: 'string', pattern: '^a{1,9}$' }, { enum: ['x', 1, null] }] },
  { type: 'string', pattern: '(((((' },
  { allOf: [{}, { not: {} }] },
  true,
);
const part = pick<unknown>(
  { type: 'text', text: 'x' },
  { type: 'image_url', image_url: { url: 'data:image/png;base64,AAAA' } },
  { type: 'image_url', image_url: { url: 'http://169.254.169.254/latest' } },
  { type: 'image_url', image_url: 'x', uuid: 'x' },
  { type: 'input_audio', input_audio: { data: 'AAAA', format: 'wav' } },
  { type: 'video_url', video_url: { url: 'file:///etc/passwd' } },
  { image_embeds: 'AAAA' },
  { type: 'image', source: { type: 'url', url: 'http://169.254.169.254/latest' } },
  { type: 'tool_result', tool_use_id: 'x', content: [{ type: 'image', source: { type: 'base64', data: 'AAAA' } }] },
  { type: 'refusal', refusal: 'x' },
);
const message = fc.record({
  role: pick('user', 'system', 'assistant', 'tool', 'x'),
  content: fc.oneof(text, fc.array(part, { maxLength: 3 }), fc.constant(null)),
});
const texts = fc.oneof(
  text,
  fc.array(text, { maxLength: 4 }),
  pick<unknown>([1, 2, 3], [[1], [2]], [], 'x'.repeat(5000)),
);

/** Plausible values of a request's fields; all other names get anything. */
const plausible: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
  stream: fc.boolean(),
  stream_options: pick<unknown>({ include_usage: true }, { include_usage: false }, {}, null, {
    continuous_usage_stats: true,
  }),
  usage: pick<unknown>({ include: true }, {}, null),
  max_tokens: pick<unknown>(0, 1, 16, 8192, 2 ** 31, null),
  max_completion_tokens: pick<unknown>(0, 1, 16, null),
  n: pick<unknown>(1, 2, 8, 9, null),
  temperature: pick<unknown>(0, 1, 2.5, -1),
  stop: fc.oneof(text, fc.array(text, { maxLength: 5 })),
  logit_bias: pick<unknown>({ '1': 100 }, {}, { x: 'y' }),
  seed: pick<unknown>(0, -1, 2 ** 53),
  service_tier: pick<unknown>('flex', 'auto', 'default', null),
  response_format: fc.oneof(
    pick<unknown>({ type: 'text' }, { type: 'json_object' }, { type: 'x' }),
    schema.map((given) => ({ type: 'json_schema', json_schema: { name: 'x', schema: given, strict: true } })),
  ),
  structured_outputs: fc.oneof(
    pick<unknown>({ choice: ['a', 'b'] }, { regex: 'a+' }, { grammar: 'x' }, { json_object: true }),
    schema.map((json) => ({ json })),
  ),
  tools: schema.map((parameters) => [{ type: 'function', function: { name: 'f', parameters } }]),
  tool_choice: pick<unknown>('auto', 'required', 'none', { type: 'function', function: { name: 'f' } }),
  cache_salt: text,
  user: text,
  prompt_cache_key: text,
  best_of: pick(1, 2),
  echo: fc.boolean(),
  logprobs: pick<unknown>(true, false, 0, 5),
  truncate_prompt_tokens: pick(-1, 1, 100),
  encoding_format: pick('float', 'base64', 'bytes'),
  dimensions: pick(1, 8),
};

const starts: Readonly<Record<string, fc.Arbitrary<object>>> = {
  '/v1/chat/completions': fc.record({
    model: pick('chat', 'CHAT', 'The chat'),
    messages: fc.array(message, { maxLength: 3 }),
  }),
  '/v1/completions': fc.record({ model: fc.constant('chat'), prompt: texts }),
  '/v1/embeddings': fc.record({ model: fc.constant('embed'), input: texts }),
  '/v1/responses': fc.record({ model: fc.constant('chat'), input: texts }),
  '/v1/messages': fc.record({
    model: fc.constant('chat'),
    messages: fc.array(message, { maxLength: 3 }),
    max_tokens: pick(1, 16, 8192),
  }),
  '/v1/messages/count_tokens': fc.record({ model: fc.constant('chat'), messages: fc.array(message, { maxLength: 3 }) }),
  '/v1/responses/input_tokens': fc.record({ model: fc.constant('chat'), input: texts }),
  '/v1/tokenize': fc.record({ model: pick('chat', 'embed'), prompt: text }),
  '/v1/detokenize': fc.record({ model: fc.constant('chat'), tokens: pick<unknown>([1, 2], [], 'x') }),
  '/v1/rerank': fc.record({ model: fc.constant('rank'), query: text, documents: fc.array(text, { maxLength: 4 }) }),
  '/v1/score': fc.record({ model: fc.constant('rank'), text_1: texts, text_2: texts }),
};

function fieldsOf({ fields }: (typeof endpoints)[number]): fc.Arbitrary<[string, unknown]> {
  const known = [...Object.keys(fields), ...Object.keys(olderVllmFields), ...Object.keys(plausible)];
  return fc
    .constantFrom(...known, 'x-unknown', '__proto__', 'constructor')
    .filter((name) => name !== 'model')
    .chain((name) => {
      const own = Object.hasOwn(plausible, name) ? plausible[name] : undefined;
      const usual = own ?? pick<unknown>(null, true, 1, 'x', [], {});
      return fc.tuple(fc.constant(name), fc.oneof({ weight: 4, arbitrary: usual }, { weight: 1, arbitrary: oddValue }));
    });
}

const jsonSnippets = pickOf(
  [
    '{',
    '}',
    '[',
    ']',
    ',',
    ':',
    '"',
    '\\',
    '\0',
    '\ufeff',
    '\u2028',
    ' ',
    '\n',
    '//x',
    '/**/',
    "'",
    '1e400',
    '-0',
    '01',
  ],
  [
    'NaN',
    'Infinity',
    '-',
    '.5',
    '1.',
    '0x1',
    'tru',
    'null',
    '"model":"chat",',
    '"mod\\u0065l":"embed",',
    '\\ud800',
    '\\u',
  ],
  [
    '"n":2,',
    '"stream":true,',
    '"__proto__":{"stream":true},',
    '"max_tokens":1,',
    '[['.repeat(600),
    '{"a":'.repeat(300),
  ],
  [
    '"x":1,'.repeat(600),
    '"\\uD83E\\uDD99"',
    '12345678901234567890',
    `1${'0'.repeat(400)}`,
    '\u007f',
    '"":1,',
    '{"a":1,"a":2}',
  ],
);

function bytesOf(value: unknown, cuts: readonly Cut[]): Buffer {
  return cuts.reduce(applyCut, Buffer.from(JSON.stringify(value) ?? ''));
}

const noCuts = fc.constant<Cut[]>([]);
const cuts = fc.oneof({ weight: 5, arbitrary: noCuts }, { weight: 2, arbitrary: cutsOf(jsonSnippets) });
const changes = fc.oneof({ weight: 3, arbitrary: fc.constant([]) }, { weight: 1, arbitrary: changesOf() });

const inferenceHeaders = fc.oneof(
  { weight: 8, arbitrary: fc.constant({}) },
  {
    weight: 1,
    arbitrary: pickOf<Record<string, string>>(
      [{ 'x-headgate-max-cost': '0.01' }, { 'x-headgate-max-cost': '0.0000001' }, { 'x-headgate-dry-run': 'true' }],
      [{ 'idempotency-key': 'one' }, { 'idempotency-key': 'two' }, { 'x-client-request-id': 'é'.repeat(3) }],
      [{ 'content-type': 'application/json; charset=utf-8' }, { 'content-type': 'text/plain' }],
    ),
  },
);

const inferenceRequest: fc.Arbitrary<JsonRequest> = fc.constantFrom(...endpoints).chain((endpoint) =>
  fc
    .record({
      start: starts[endpoint.path] ?? fc.constant({}),
      fields: fc.array(fieldsOf(endpoint), { maxLength: 5 }),
      changes,
      cuts,
      headers: inferenceHeaders,
    })
    .map(({ start, fields, changes: made, cuts: cut, headers }) => ({
      method: 'POST',
      path: endpoint.path,
      key: 'inference' as const,
      headers,
      body: bytesOf(changed(Object.fromEntries([...Object.entries(start), ...fields]), made), cut),
    })),
);

/** A JSON Schema of the document, as far as it is used there. */
interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly anyOf?: readonly Schema[];
  readonly items?: Schema;
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly example?: unknown;
}

export interface ApiDocument {
  readonly paths: Readonly<
    Record<
      string,
      Readonly<Record<string, { requestBody?: { content: Readonly<Record<string, { schema: Schema }>> } }>>
    >
  >;
  readonly components: { readonly schemas: Readonly<Record<string, Schema>> };
}

function valuesOf(given: Schema, document: ApiDocument): fc.Arbitrary<unknown> {
  const { $ref, anyOf, properties, example } = given;
  if ($ref !== undefined) return valuesOf(document.components.schemas[$ref.split('/').at(-1) ?? ''] ?? {}, document);
  if (given.enum !== undefined) return fc.constantFrom(...given.enum);
  if (anyOf !== undefined) return fc.oneof(...anyOf.map((one) => valuesOf(one, document)));
  if (properties !== undefined) {
    const model = Object.fromEntries(Object.entries(properties).map(([name, one]) => [name, valuesOf(one, document)]));
    return fc.record(model, { requiredKeys: (given.required ?? []).filter((name) => Object.hasOwn(model, name)) });
  }
  const types = Array.isArray(given.type) ? given.type : [given.type];
  const known: Readonly<Record<string, fc.Arbitrary<unknown>>> = {
    string: fc.oneof(text, pick('x', '25.00', 'active'), example === undefined ? text : fc.constant(example)),
    integer: pick(0, 1, -1, 60, 2 ** 31, 2 ** 53),
    number: pick(0, 1.5, -1, 1e300),
    boolean: fc.boolean(),
    array: fc.array(given.items === undefined ? oddValue : valuesOf(given.items, document), { maxLength: 3 }),
    null: fc.constant(null),
  };
  return fc.oneof(...types.map((type) => known[type ?? ''] ?? oddValue));
}

/** Paths that platform administrators may use without an effect on anyone else's answers. */
const ofAdmins = ['/v1/wallet/credits', '/v1/organizations'];

function managementRequests(document: ApiDocument): fc.Arbitrary<JsonRequest> {
  const routes = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, { requestBody }]) => {
      const given = requestBody?.content['application/json']?.schema;
      const isInference = endpoints.some((endpoint) => endpoint.path === path);
      return given === undefined || isInference ? [] : [{ path, method: method.toUpperCase(), given }];
    }),
  );
  return fc.constantFrom(...routes).chain(({ path, method, given }) =>
    fc
      .record({ value: valuesOf(given, document), changes, cuts, inference: fc.nat(9) })
      .map(({ value, changes: made, cuts: cut, inference }) => ({
        method,
        path: path.replace(/\{[^}]*\}/g, 'key_SPARE'),
        key: ofAdmins.includes(path)
          ? ('admin' as const)
          : inference === 9
            ? ('inference' as const)
            : ('management' as const),
        headers: {},
        body: bytesOf(changed(value, made), cut),
      })),
  );
}

/** Some requests at once. */
export function jsonCases(document: ApiDocument): fc.Arbitrary<readonly JsonRequest[]> {
  const one = fc.oneof(
    { weight: 5, arbitrary: inferenceRequest },
    { weight: 1, arbitrary: managementRequests(document) },
  );
  return fc.array(one, { minLength: 1, maxLength: 6 });
}
