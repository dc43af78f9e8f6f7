import { afterAll, describe, expect, it } from 'vitest';
import { type ByteServer, startByteServer } from '../../core/proxy/byte-server.ts';
import { type Body, errorOf, externalFile, useInference } from './inference-gateway.ts';

/** An engine that answers as the next of these says. */
let answer = '';
let engine: ByteServer | null = null;

const bench = useInference(async () => {
  engine = await startByteServer({ transport: 'tcp', answer: ({ socket }) => void socket.write(answer, 'latin1') });
  const url = `http://127.0.0.1:${engine.endpoint.port}`;
  return {
    engines: {
      chat: externalFile('chat', url),
      embed: externalFile('embed', url, { taskType: 'embedding' }),
      rank: externalFile('rank', url, { taskType: 'rerank' }),
    },
  };
});
afterAll(() => engine?.close());

function answerWith(status: number, body: string, headers: readonly string[] = []): void {
  const lines = [`HTTP/1.1 ${status} X`, ...headers, `content-length: ${Buffer.byteLength(body)}`, '', ''];
  answer = lines.join('\r\n') + Buffer.from(body).toString('latin1');
}

const vllmHeaders = [
  'server: uvicorn',
  'vary: Origin',
  'access-control-allow-origin: *',
  'content-type: application/json',
];

/** vLLM's envelope of a 400. */
const envelope = (message: string, param: string | null = null, type = 'BadRequestError'): string =>
  JSON.stringify({ error: { message, type, param, code: 400 } });

const tooLong = (limit: number, output: number, input: number): string =>
  `This model's maximum context length is ${limit} tokens. However, you requested ${output} output tokens and your prompt contains at least ${input} input tokens, for a total of at least ${input + output} tokens. Please reduce the length of the input prompt or the number of requested output tokens. (parameter=input_tokens, value=${input})`;

/** What a real vLLM 0.29 answered, the code and param that clients get, and what the message must say. */
const refusals: readonly [string, string, string, string | null, readonly string[], object?][] = [
  ['a schema that is none', envelope('Grammar error: Invalid type: nonsense'), 'invalid_value', 'response_format', []],
  [
    "a schema of vLLM's own field",
    envelope('Grammar error: Invalid type: nosuch'),
    'invalid_value',
    'structured_outputs.json',
    ['schema'],
    { structured_outputs: { json: { type: 'string' } } },
  ],
  [
    'the schema of a tool',
    envelope("Invalid grammar specification: 'triggers'"),
    'invalid_value',
    'tools',
    ['schema'],
    { tools: [{ type: 'function', function: { name: 'f' } }], tool_choice: 'required' },
  ],
  [
    'no constraint in structured_outputs',
    envelope("You must use one kind of structured outputs constraint but none are specified: {'json': None}"),
    'invalid_value',
    'structured_outputs',
    ['json, regex, choice'],
  ],
  [
    'an empty list of choices',
    envelope("Choice '[]' cannot be an empty list"),
    'invalid_value',
    'structured_outputs.choice',
    ['at least one choice'],
  ],
  [
    'too many top_logprobs',
    envelope(
      'Requested sample logprobs of 50, which is greater than max allowed: 20 (parameter=logprobs, value=50)',
      'logprobs',
    ),
    'invalid_value',
    'top_logprobs',
    ['from 0 to 20'],
    { logprobs: true, top_logprobs: 50 },
  ],
  [
    'top_logprobs alone',
    envelope('when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)', 'top_logprobs'),
    'invalid_value',
    'top_logprobs',
    ['needs "logprobs": true'],
  ],
  [
    'a limit by the name that the client gave it',
    envelope('max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)', 'max_tokens'),
    'invalid_value',
    'max_completion_tokens',
    ['"max_completion_tokens" must be at least 1'],
    { max_completion_tokens: 0 },
  ],
  [
    'a message without a role',
    envelope(
      "3 validation errors:\n  {'type': 'missing', 'loc': ('body', 'messages', 0, 'ChatCompletionDeveloperMessageParam', 'role'), 'msg': 'Field required', 'input': {'content': 'secret prompt'}}\n  {'type': 'missing', 'loc': ('body', 'messages', 0, 'Message', 'author'), 'msg': 'Field required', 'input': {'content': 'x'}}\n  {'type': 'list_type', 'loc': ('body', 'messages', 0, 'Message', 'content'), 'msg': 'Input should be a valid list', 'input': 'x'}",
      'body.messages.0.ChatCompletionDeveloperMessageParam.role',
      'Bad Request',
    ),
    'invalid_request_error',
    'messages[0].role',
    ['"messages[0].role" is missing'],
  ],
  [
    'a word that is none of those allowed',
    envelope(
      `2 validation errors:\n  {'type': 'literal_error', 'loc': ('body', 'tools', 0, 'type'), 'msg': "Input should be 'function'", 'input': 'secret prompt', 'ctx': {'expected': "'function'"}}\n  {'type': 'missing', 'loc': ('body', 'tools', 0, 'function'), 'msg': 'Field required', 'input': {'type': 'other'}}`,
      'body.tools.0.type',
      'Bad Request',
    ),
    'invalid_value',
    'tools[0].type',
    ['must be "function"'],
    { tools: [{ type: 'other' }] },
  ],
  [
    'a bound of the validator',
    envelope(
      "1 validation error:\n  {'type': 'less_than_equal', 'loc': ('body', 'seed'), 'msg': 'Input should be less than or equal to 9223372036854775807', 'input': 100000000000000000000, 'ctx': {'le': 9223372036854775807}}",
      'body.seed',
      'Bad Request',
    ),
    'invalid_value',
    'seed',
    ['may be at most 9223372036854775807'],
    { seed: 1 },
  ],
  [
    'values of several kinds',
    envelope(
      "2 validation errors:\n  {'type': 'string_type', 'loc': ('body', 'stop', 'str'), 'msg': 'Input should be a valid string', 'input': 5}\n  {'type': 'list_type', 'loc': ('body', 'stop', 'list[str]'), 'msg': 'Input should be a valid list', 'input': 5}",
      'body.stop',
      'Bad Request',
    ),
    'invalid_value',
    'stop',
    ['"stop" must be a string or a list.'],
    { stop: 'x' },
  ],
  [
    'a tool that is not there',
    envelope('When using `tool_choice`, `tools` must be set. (parameter=tool_choice)', 'tool_choice'),
    'invalid_value',
    'tool_choice',
    ['needs "tools"'],
  ],
  [
    'a token of another model',
    envelope('Token id 999999 is out of vocabulary'),
    'invalid_value',
    'messages',
    ['does not have'],
  ],
  [
    'what makes the model go on, twice',
    envelope('Cannot set both `continue_final_message` and `add_generation_prompt` to True.'),
    'invalid_value',
    'continue_final_message',
    ['exclude each other'],
  ],
  [
    'broken JSON',
    envelope(
      "1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', 24), 'msg': 'JSON decode error', 'input': {}, 'ctx': {'error': 'Expecting property name enclosed in double quotes'}}",
      'body.24',
      'Bad Request',
    ),
    'invalid_request_error',
    null,
    ['24'],
  ],
  [
    'a content type',
    envelope("1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", null, 'Bad Request'),
    'invalid_request_error',
    null,
    [],
  ],
  [
    'an empty body',
    envelope(
      "1 validation error:\n  {'type': 'missing', 'loc': ('body',), 'msg': 'Field required', 'input': None}",
      'body',
      'Bad Request',
    ),
    'invalid_request_error',
    null,
    ['missing'],
  ],
  [
    'no messages at all',
    envelope('Cannot apply chat template to an empty conversation. Provide at least one message.'),
    'invalid_value',
    'messages',
    ['at least one message'],
  ],
  ['an image', envelope('smollm2-135m is not a multimodal model'), 'unsupported_parameter', 'messages', ['text']],
  [
    'too many logprobs',
    envelope(
      'Requested sample logprobs of 50, which is greater than max allowed: 20 (parameter=logprobs, value=50)',
      'logprobs',
    ),
    'invalid_value',
    'logprobs',
    ['20'],
  ],
  [
    'no output at all',
    envelope('max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)', 'max_tokens'),
    'invalid_value',
    'max_tokens',
    ['1'],
  ],
  [
    'more output than the context',
    envelope(
      'max_tokens=100000 cannot be greater than max_model_len=max_total_tokens=2048. Please request fewer output tokens. (parameter=max_tokens, value=100000)',
      'max_tokens',
    ),
    'context_length_exceeded',
    'max_tokens',
    ['100000', '2048'],
  ],
  ['no choices', envelope('n must be at least 1, got 0.'), 'invalid_value', 'n', ['1']],
  [
    'a missing field',
    envelope(
      "1 validation error:\n  {'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required', 'input': {'model': 'smollm2-135m'}}",
      'body.messages',
      'Bad Request',
    ),
    'invalid_request_error',
    'messages',
    ['messages'],
  ],
  [
    'stream options without a stream',
    envelope('Stream options can only be defined when `stream=True`. (parameter=stream_options)', 'stream_options'),
    'invalid_value',
    'stream_options',
    ['stream'],
  ],
  [
    'a long prompt',
    envelope(tooLong(2048, 24, 2025), 'input_tokens'),
    'context_length_exceeded',
    'messages',
    ['2048', '24', '2025'],
  ],
  [
    'a long input of an embedding',
    envelope(tooLong(2048, 0, 2049), 'input_tokens'),
    'context_length_exceeded',
    'messages',
    ['2048', '2049. Shorten it.'],
  ],
  [
    'a negative temperature',
    envelope('temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)', 'temperature'),
    'invalid_value',
    'temperature',
    ['-1.0'],
  ],
  ['a penalty', envelope('presence_penalty must be in [-2, 2], got 5.0.'), 'invalid_value', 'presence_penalty', ['-2']],
  ['a share', envelope('min_p must be in [0, 1], got 2.0.'), 'invalid_value', 'min_p', ['at least 0 and at most 1']],
  [
    'a share of nothing',
    envelope('top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)', 'top_p'),
    'invalid_value',
    'top_p',
    ['above 0'],
  ],
  [
    'a factor of nothing',
    envelope('repetition_penalty must be greater than zero, got 0.0.'),
    'invalid_value',
    'repetition_penalty',
    ['above 0'],
  ],
  ['an empty stop', envelope('stop cannot contain an empty string.'), 'invalid_value', 'stop', ['empty']],
  [
    'an odd number of candidates',
    envelope('top_k must be 0 (disable), or at least 1, got -5.'),
    'invalid_value',
    'top_k',
    ['"top_k"'],
  ],
  [
    'less output than the least',
    envelope('min_tokens must be less than or equal to max_tokens=4, got 9.'),
    'invalid_value',
    'min_tokens',
    ['4'],
  ],
  [
    'several choices that would all be the same',
    envelope('n must be 1 when using greedy sampling, got 2.'),
    'invalid_value',
    'n',
    ['"temperature" is 0'],
  ],
  [
    'an empty list of tools',
    envelope(
      '`tools` must not be an empty array. Either provide at least one tool or omit the field entirely. (parameter=tools)',
      'tools',
    ),
    'invalid_value',
    'tools',
    ['tools'],
  ],
  [
    'a wrong type',
    envelope(
      "1 validation error:\n  {'type': 'float_parsing', 'loc': ('body', 'temperature'), 'msg': 'Input should be a valid number, unable to parse string as a number', 'input': 'hot secret prompt'}",
      'body.temperature',
      'Bad Request',
    ),
    'invalid_value',
    'temperature',
    ['temperature'],
  ],
  [
    'tools without a parser',
    envelope('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    'unsupported_parameter',
    'tools',
    ['tool calls'],
  ],
  [
    'the size of an embedding',
    envelope(
      "Model 'smollm2-135m' does not support Matryoshka embeddings; dimensions must be unset (received dimensions=64).",
    ),
    'unsupported_parameter',
    'dimensions',
    [],
  ],
  [
    'an empty list of inputs',
    envelope('You must pass at least one prompt'),
    'invalid_value',
    'messages',
    ['at least one'],
  ],
  ['an empty input', envelope('The decoder prompt cannot be empty'), 'invalid_value', 'messages', ['no input']],
  [
    'a text that nobody knows yet',
    envelope('/opt/venv/vllm/engine.py: EngineCore says no to 10.0.0.7'),
    'invalid_request_error',
    null,
    [],
  ],
  ['no envelope at all', '<html>nginx at 10.0.0.7</html>', 'invalid_request_error', null, []],
];

const leaks =
  /smollm2|BadRequest|validation error|parameter=|EngineCore|vllm|10\.0\.0\.7|secret prompt|--enable|nginx|function-wrap/i;

describe('a 400 of the engine becomes a 400 in our words', () => {
  it.each(
    refusals.map(([name, body, code, param, said, fields]) => [name, { body, code, param, said, fields }] as const),
  )('%s', async (_, { body, code, param, said, fields }) => {
    for (const stream of [true, false]) {
      answerWith(400, body, vllmHeaders);
      const got = await bench.chat({ ...fields, stream });
      expect(
        got.headers.get('server') ?? got.headers.get('vary') ?? got.headers.get('access-control-allow-origin'),
      ).toBeNull();
      const error = await errorOf(got);
      expect(error).toMatchObject({ status: 400, code, param, type: 'invalid_request_error' });
      expect(error.message).not.toMatch(leaks);
      expect(error.message).toMatch(/[^.]\.$/);
      for (const words of said) expect(error.message).toContain(words);
      const record = await bench.record(got.headers.get('x-request-id') ?? '');
      expect(record).toMatchObject({ status: 400, outcome: 'failed', reason: code, cost: '0', output_tokens: 0 });
    }
  });

  it('an embedding format that the validator lists in every variant of a body', async () => {
    const variants = ['function-wrap[__log_extra_fields__()]', 'EmbeddingChatRequest'].map(
      (variant) =>
        `  {'type': 'literal_error', 'loc': ('body', '${variant}', 'encoding_format'), 'msg': "Input should be 'float'", 'input': 'hex'}`,
    );
    answerWith(
      400,
      envelope(
        `2 validation errors:\n${variants.join('\n')}`,
        'body.function-wrap[__log_extra_fields__()].encoding_format',
        'Bad Request',
      ),
    );
    const error = await errorOf(
      await bench.post('/v1/embeddings', { model: 'embed', input: 'x', encoding_format: 'hex' }),
    );
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param: 'encoding_format' });
  });

  it('the half of a pair that is not there', async () => {
    const variant = 'function-after[_merge_instruction_into_kwargs(), function-wrap[__log_extra_fields__()]]';
    const entries = ['queries', 'documents', 'data_1', 'data_2', 'text_2'].map(
      (name) => `  {'type': 'missing', 'loc': ('body', '${variant}', '${name}'), 'msg': 'Field required', 'input': {}}`,
    );
    answerWith(400, envelope(`5 validation errors:\n${entries.join('\n')}`, `body.${variant}.queries`, 'Bad Request'));
    const error = await errorOf(await bench.post('/v1/score', { model: 'rank', text_1: 'x' }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_request_error', param: 'text_2' });
  });

  it('an embedding without input', async () => {
    const message =
      "7 validation errors:\n  {'type': 'missing', 'loc': ('body', 'function-wrap[__log_extra_fields__()]', 'input'), 'msg': 'Field required', 'input': {'model': 'smollm2-135m'}}\n  {'type': 'missing', 'loc': ('body', 'function-wrap[__log_extra_fields__()]', 'messages'), 'msg': 'Field required', 'input': {'model': 'smollm2-135m'}}";
    answerWith(400, envelope(message, 'body.function-wrap[__log_extra_fields__()].input', 'Bad Request'));
    const error = await errorOf(await bench.post('/v1/embeddings', { model: 'embed' }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_request_error' });
    expect(error.message).not.toMatch(leaks);
  });
});

describe('a request of the minute', () => {
  it('is used up by what reached an engine, though that refused it, and by nothing that did not', async () => {
    const body = { name: 'counted', scope: 'inference', requests_per_minute: 2 };
    const made: Body = await (await bench.gateway.request('/v1/keys', { body })).json();
    const ask = async (fields: object): Promise<[number, string | null]> => {
      const got = await bench.chat(fields, { key: made.secret });
      await got.text();
      return [got.status, got.headers.get('x-ratelimit-remaining')];
    };
    answerWith(400, envelope('Grammar error: Invalid type: nonsense'), vllmHeaders);
    expect(await ask({})).toEqual([400, '1']);
    expect((await ask({ model: 'nobody' }))[0]).toBe(400);
    expect((await ask({ best_of: 4 }))[0]).toBe(400);
    expect(await ask({})).toEqual([400, '0']);
    expect(await ask({})).toEqual([429, '0']);
  });
});

describe('what the engine says about itself is our failure', () => {
  it.each([
    [
      'an unknown model',
      404,
      '{"error":{"message":"The model `nope` does not exist.","type":"NotFoundError","param":"model","code":404}}',
      502,
    ],
    ['an unknown route', 404, '{"detail":"Not Found"}', 502],
    ['a key that it does not know', 401, '{"error":"Unauthorized"}', 502],
    ['a method', 405, '{"detail":"Method Not Allowed"}', 502],
    [
      'its own death',
      500,
      '{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}',
      502,
    ],
    [
      'a shutdown',
      500,
      '{"error":{"message":"cannot schedule new futures after shutdown","type":"InternalServerError","param":null,"code":500}}',
      502,
    ],
    ['scaling', 503, '{"error":"The model is currently scaling. Please try again later."}', 503],
    ['a JSON answer to a stream', 200, '{"id":"x","choices":[]}', 502],
  ])('%s', async (_, status, body, expected) => {
    answerWith(status, body, vllmHeaders);
    const error = await errorOf(await bench.chat({ stream: true }));
    expect(error).toMatchObject({ status: expected, code: 'upstream_error', type: 'upstream_error', param: null });
    expect(error.message).not.toMatch(/nope|EngineCore|futures|scaling|Unauthorized/);
  });

  it.each([
    ['an object', '{"error":{"message":"EngineCore says no","code":500}}'],
    ['a text', '{"id":"x","error":"EngineCore says no"}'],
    ['beside an empty usage', '{"usage":null,"error":{"message":"EngineCore says no"}}'],
  ])('an error under status 200, %s', async (_, body) => {
    answerWith(200, body, vllmHeaders);
    const got = await bench.chat({});
    expect(await errorOf(got.clone())).toMatchObject({ status: 502, code: 'upstream_error', type: 'upstream_error' });
    expect(await got.text()).not.toContain('EngineCore');
    expect(await bench.recordOf(got)).toMatchObject({ status: 502, outcome: 'failed', cost: '0' });
  });

  it('an answer without usage that says it has no error is one', async () => {
    const body = '{"id":"x","error":null,"choices":[]}';
    answerWith(200, body, vllmHeaders);
    const got = await bench.chat({});
    expect([got.status, await got.text()]).toEqual([200, body]);
  });

  it('its own Retry-After is kept when it is one', async () => {
    for (const [line, seconds] of [
      ['retry-after: 7', '7'],
      ['retry-after: 0', '1'],
      ['retry-after: Wed, 21 Oct 2099 07:28:00 GMT', '5'],
      ['x-nothing: 1', '5'],
    ] as const) {
      answerWith(429, '{}', [line]);
      const got = await bench.chat({});
      expect(got.status).toBe(503);
      expect(got.headers.get('retry-after')).toBe(seconds);
    }
  });
});
