import { afterAll, describe, expect, it } from 'vitest';
import { allowableFields } from '#core/catalog/catalog.ts';
import { type EndpointPath, endpoints } from '#edge/inference/request/endpoints.ts';
import { olderVllmFields } from '#edge/inference/request/vllm-fields.ts';
import { startByteServer, type ByteServer } from '#test/proxy/byte-server.ts';
import { errorOf, externalFile, useInference } from '#test/inference/inference-gateway.ts';

/** Checks that each field of vLLM is treated as the table of fields says. */

const jsonBody =
  '{"stop_reason":"end_turn","choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}';

/** With a vector for each text, where there is a list of them: many are sent in parts, whose vectors are counted. */
function jsonAnswer(body: string): string {
  const { input } = JSON.parse(body === '' ? '{}' : body) as { input?: unknown };
  const data = Array.isArray(input) ? input.map((_, index) => ({ index, embedding: [0] })) : [];
  const text = jsonBody.replace('{', `{"token_ids":[1],"data":${JSON.stringify(data)},`);
  return `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${text.length}\r\n\r\n${text}`;
}

let engine: ByteServer | null = null;
afterAll(() => engine?.close());

const bench = useInference(async () => {
  engine = await startByteServer({
    transport: 'tcp',
    answer: ({ socket, body }) => void socket.write(jsonAnswer(body)),
  });
  const url = `http://127.0.0.1:${engine.endpoint.port}`;
  const lines = ['kind: vllm', 'share_cache: true'];
  const allowed = [...lines, `allow: [${allowableFields.join(', ')}]`];
  const tasks = ['chat', 'embedding', 'rerank'];
  return {
    engines: Object.fromEntries([
      ...tasks.map((taskType) => [taskType, externalFile(taskType, url, { taskType, lines })]),
      ...tasks.map((taskType) => [
        `allowed-${taskType}`,
        externalFile(`allowed-${taskType}`, url, { taskType, lines: allowed }),
      ]),
    ]),
  };
});

const models: Readonly<Record<EndpointPath, string>> = {
  '/v1/chat/completions': 'chat',
  '/v1/completions': 'chat',
  '/v1/responses': 'chat',
  '/v1/messages': 'chat',
  '/v1/messages/count_tokens': 'chat',
  '/v1/responses/input_tokens': 'chat',
  '/v1/tokenize': 'chat',
  '/v1/detokenize': 'chat',
  '/v1/embeddings': 'embedding',
  '/v1/rerank': 'rerank',
  '/v1/score': 'rerank',
};

const image = { type: 'image_url', image_url: { url: 'http://169.254.169.254/' } };
const seeing = [{ role: 'user', content: [image] }];
const list = (length: number): number[] => Array.from({ length }, (_, at) => at);
const long = 'lorem ipsum '.repeat(30_000);

/** Out of bounds, and within, of each bounded field; with what else the request must have for that. */
const samples: Readonly<Record<string, readonly [beyond: unknown, within: unknown, more?: object]>> = {
  n: [9, 8],
  messages: [seeing, [{ role: 'user', content: 'x' }]],
  // How many there may be is not this table's.
  prompt: ['', ''],
  input: [seeing, 'x'],
  echo: [true, false, { logprobs: 1 }],
  encoding_format: ['bytes', 'base64'],
  chat_template_kwargs: [{ chat_template: '{{ x }}' }, { enable_thinking: false }],
  stop: [['x'.repeat(257)], ['x'.repeat(256)]],
  stop_token_ids: [list(65), list(64)],
  allowed_token_ids: [list(1025), list(1024)],
  logit_bias: [
    Object.fromEntries(list(1025).map((id) => [id, 1])),
    Object.fromEntries(list(1024).map((id) => [id, 1])),
  ],
  bad_words: [['x'.repeat(449)], ['x'.repeat(448)]],
  thinking_token_budget: [2 ** 31, 2 ** 31 - 1],
  top_k: [10 ** 30, 40],
  stream_interval: [10 ** 30, 4],
  repetition_detection: [
    { max_pattern_size: 65, min_count: 2 },
    { max_pattern_size: 64, min_count: 16 },
  ],
  truncate_prompt_tokens: [16, -1, { [' ']: long }],
  max_tokens_per_doc: [16, 0, { [' ']: long }],
  max_tokens_per_query: [16, 0, { [' ']: long.repeat(3) }],
  response_format: [{ type: 'structural_tag', format: { type: 'regex', pattern: 'a' } }, { type: 'json_object' }],
  structured_outputs: [{ regex: 'a' }, { choice: ['a'] }],
  tools: [
    [{ type: 'function', function: { name: 'f', strict: true, parameters: { pattern: '(a{0,99}){0,99}' } } }],
    [{ type: 'function', function: { name: 'f', parameters: {} } }],
  ],
};
/** Where a field has another form than on the other routes. */
const responsesSamples: typeof samples = {
  tools: [
    [{ type: 'function', name: 'f', parameters: { pattern: '(a{0,99}){0,99}' } }],
    [{ type: 'function', name: 'f', parameters: {} }],
  ],
  text: [
    { format: { type: 'json_schema', name: 'x', schema: { pattern: '(a{0,99}){0,99}' } } },
    { format: { type: 'json_schema', name: 'x', schema: {} }, verbosity: 'low' },
  ],
  background: [true, false],
  truncation: ['auto', 'disabled', { [' ']: long.repeat(2) }],
};
const anthropicTools = (pattern: string): object[] => [
  { name: 'f', strict: true, input_schema: { type: 'string', pattern } },
];
const messagesSamples: typeof samples = {
  tools: [anthropicTools('(a{0,99}){0,99}'), anthropicTools('a')],
  output_config: [
    { format: { type: 'json_schema', schema: { pattern: '(a{0,99}){0,99}' } } },
    { format: { type: 'json_schema', schema: {} }, effort: 'low' },
  ],
  stop_sequences: [['x'.repeat(257)], ['x'.repeat(256)]],
};
/** How long a prompt may be that is only tokenized. */
const tokenizeSamples: typeof samples = { prompt: [long, 'x'] };
const comparedSample = [{ content: [image] }, 'x'] as const;
const ownSamples: Readonly<Partial<Record<EndpointPath, typeof samples>>> = {
  '/v1/responses': responsesSamples,
  '/v1/messages': messagesSamples,
  '/v1/responses/input_tokens': responsesSamples,
  '/v1/messages/count_tokens': messagesSamples,
  '/v1/tokenize': tokenizeSamples,
};
const sampleOf = (path: EndpointPath, field: string): readonly [unknown, unknown, object?] | undefined =>
  ownSamples[path]?.[field] ??
  samples[field] ??
  (/^(?:query|queries|documents|items|data_[12]|text_[12])$/.test(field) ? comparedSample : undefined);

const fieldsOf = (fields: object, decision: string): string[] =>
  Object.entries({ ...olderVllmFields, ...fields }).flatMap(([field, decided]) =>
    decided === decision ? [field] : [],
  );

const odds = { toString: 'x', valueOf: 1 };

const post = (path: EndpointPath, fields: object, prefix = ''): Promise<Response> =>
  bench.post(path, { model: prefix + models[path], ...fields });

describe.each(endpoints)('a field of $path', ({ path, fields }) => {
  it('reaches the engine unchanged when it is passed', async () => {
    const odd = '{"any" : [1e400]}';
    const typed: Readonly<Record<string, string>> = { stream: 'false' };
    const members = fieldsOf(fields, 'passed').map((field) => `"${field}": ${typed[field] ?? odd}`);
    const body = `{"model":"${models[path]}", ${members.join(' ,')}, "not known": ${odd}}`;
    expect((await bench.post(path, body)).status).toBe(200);
    // The gateway's own fields stand before the first member.
    const set = /"store":false,"request_id":"resp_[-0-9a-f]{36}",/;
    expect(
      engine?.requests
        .findLast(({ head }) => head.startsWith('POST '))
        ?.body.replace(path === '/v1/responses' ? set : '', ''),
    ).toBe(body);
  });

  it.each(fieldsOf(fields, 'refused'))(
    'returns 400 unless it is null or the engine file allows it: %s',
    async (field) => {
      const error = await errorOf(await post(path, { [field]: 2 }));
      expect(error).toMatchObject({ status: 400, code: 'unsupported_parameter', param: field });
      expect((await post(path, { [field]: null })).status).toBe(200);
      expect((await post(path, { [field]: 2 }, 'allowed-')).status).toBe(200);
    },
  );

  it.each(fieldsOf(fields, 'bounded'))('is bounded: %s', async (field) => {
    const sample = sampleOf(path, field);
    if (sample === undefined) throw new Error(`there is no sample of ${field}`);
    const [beyond, within, more = {}] = sample;
    const passed = await post(path, { ...more, [field]: within });
    expect([passed.status, passed.status === 200 ? '' : await passed.text()]).toEqual([200, '']);
    if (field === 'prompt') return;
    const error = await errorOf(await post(path, { ...more, [field]: beyond }));
    expect(error).toMatchObject({ status: 400, type: 'invalid_request_error' });
    expect(error.param.split(/[.[]/)[0]).toBe(field);
  });

  it.each(fieldsOf(fields, 'bounded'))('answers no 5xx for an object with a member toString: %s', async (field) => {
    // Its conversion to a number or a text throws.
    for (const odd of [odds, [odds], [[odds]]]) expect((await post(path, { [field]: odd })).status).toBeLessThan(500);
  });
});

it.each(['/v1/messages', '/v1/messages/count_tokens'] as const)(
  'returns 400 for a tool that a message of %s defines, and passes references',
  async (path) => {
    const definition = { name: 'f', strict: true, input_schema: { pattern: '(a{0,99}){0,99}' } };
    const changing = (tool: object): object => ({
      messages: [{ role: 'system', content: [{ type: 'tool_addition', tool }] }],
    });
    const defined = changing({ type: 'tool_definition', definition });
    const refused = { status: 400, code: 'unsupported_parameter', param: 'messages' };
    expect(await errorOf(await post(path, defined))).toMatchObject(refused);
    const escaped = JSON.stringify({ model: models[path], ...defined }).replace('tool_def', 'tool\\u005fdef');
    expect(await errorOf(await bench.post(path, escaped))).toMatchObject(refused);
    expect((await post(path, changing({ type: 'tool_reference', name: 'f' }))).status).toBe(200);
  },
);

it('returns 400 for beam search, and for echo without logprobs, only when they are requested', async () => {
  expect((await post('/v1/chat/completions', { use_beam_search: false })).status).toBe(200);
  expect((await post('/v1/completions', { echo: true, logprobs: null })).status).toBe(200);
  for (const fields of [{ echo: true }, { echo: 1 }]) {
    expect(await errorOf(await post('/v1/chat/completions', fields))).toMatchObject({ status: 400, param: 'echo' });
    expect((await post('/v1/chat/completions', fields, 'allowed-')).status).toBe(200);
  }
});

it.each(['stop', 'bad_words'])(
  'returns 400 for %s with half a surrogate pair, which engines fail on',
  async (field) => {
    const error = await errorOf(await post('/v1/chat/completions', { [field]: ['whole', 'half: \ud83d'] }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: field });
    expect((await post('/v1/chat/completions', { [field]: ['\u{1f600}'] })).status).toBe(200);
  },
);

it('limits the length of a text by the tokens to which it is truncated', async () => {
  const embed = (input: unknown, tokens: number): Promise<Response> =>
    post('/v1/embeddings', { input, truncate_prompt_tokens: tokens });
  expect((await embed(long, 512)).status).toBe(400);
  expect((await embed(long, -1)).status).toBe(200);
  const texts = Array.from({ length: 40 }, () => 'lorem ipsum '.repeat(2000));
  expect((await embed(texts, 512)).status).toBe(200);
  expect((await embed(texts, 16)).status).toBe(400);
  expect((await post('/v1/embeddings', { input: texts })).status).toBe(200);
  const error = await errorOf(await embed(long, 16));
  expect(error).toMatchObject({ code: 'context_length_exceeded', param: 'truncate_prompt_tokens' });
});

it('returns 400 without being parsed when it is far too long', async () => {
  const stop = ['"', 'x'.repeat(200_000), '"'].join('');
  for (const [field, value] of [
    ['stop_token_ids', `[${list(100_000).join(',')}]`],
    ['bad_words', `[${stop}]`],
    ['stop', stop],
  ]) {
    const answer = await bench.post('/v1/chat/completions', `{"model":"chat","${field}":${value}}`);
    expect(await errorOf(answer)).toMatchObject({ status: 400, param: field });
  }
});

it.each([
  ['thinking_token_budget', '3_000_000_000', 'thinking_token_budget'],
  ['repetition_detection', { max_pattern_size: '16_000', min_count: 2 }, 'repetition_detection.max_pattern_size'],
  ['repetition_detection', { max_pattern_size: 3, min_count: '1_7' }, 'repetition_detection.min_count'],
  ['truncate_prompt_tokens', '1_6', 'truncate_prompt_tokens'],
  ['truncate_prompt_tokens', true, 'truncate_prompt_tokens'],
])('returns 400 for %s as a text that engines read as a number', async (field, value, param) => {
  const error = await errorOf(await post('/v1/chat/completions', { [field]: value }));
  expect(error).toMatchObject({ status: 400, code: 'invalid_value', param });
});
