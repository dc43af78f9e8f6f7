import { afterAll, describe, expect, it } from 'vitest';
import { type ByteServer, startByteServer } from '#test/proxy/byte-server.ts';
import { envelope, refusals } from './engine-refusal-table.ts';
import { type Body, errorOf, externalFile, useInference } from '#test/inference/inference-gateway.ts';

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

const leaks =
  /smollm2|BadRequest|validation error|parameter=|EngineCore|vllm|10\.0\.0\.7|secret prompt|--enable|nginx|function-wrap/i;

describe('a 400 of the engine', () => {
  it.each(
    refusals.map(([name, body, code, param, said, fields]) => [name, { body, code, param, said, fields }] as const),
  )("returns 400 in the gateway's words: %s", async (_, { body, code, param, said, fields }) => {
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

  it('is a failure of the model when its call of a tool has no arguments of the form', async () => {
    const message =
      "1 validation error for AnthropicContentBlock\ninput\n  Input should be a valid dictionary [type=dict_type, input_value='secret prompt', input_type=str]";
    answerWith(400, JSON.stringify({ type: 'error', error: { type: 'BadRequestError', message } }), vllmHeaders);
    const tools = [{ name: 'now', input_schema: { type: 'object' } }];
    const messages = [{ role: 'user', content: 'x' }];
    const body = { model: 'chat', max_tokens: 5, messages, tools, tool_choice: { type: 'any' } };
    const got = await bench.post('/v1/messages', body);
    const { error }: Body = await got.json();
    expect([got.status, error.code]).toEqual([502, 'upstream_error']);
    expect(error.message).toContain('Send the request again.');
    expect(error.message).not.toMatch(leaks);
  });

  it('names the place of a JSON error in the body that the client sent, not in the forwarded one', async () => {
    const at = "{'type': 'json_invalid', 'loc': ('body', 128), 'msg': 'JSON decode error'}";
    const headers = { 'content-type': 'application/json', authorization: `Bearer ${bench.gateway.key}` };
    const sent = '{"model": "chat", "messages": [{"role": "user", "content": "one line\n and more"}], "stream": true}';
    for (const said of [envelope(`1 validation error:\n  ${at}`, 'body.128', 'Bad Request'), '{"error":"invalid"}']) {
      answerWith(400, said, vllmHeaders);
      const got = await fetch(new URL('/v1/chat/completions', bench.gateway.url), {
        method: 'POST',
        headers,
        body: sent,
      });
      expect(await errorOf(got)).toMatchObject({
        status: 400,
        code: 'invalid_request_error',
        param: null,
        message: `The request body is not valid JSON at byte ${sent.indexOf('\n')}: a line break inside a string must be written as \\n.`,
      });
    }
  });

  it('names encoding_format when the engine reports it in every variant of the body', async () => {
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

  it('names the missing half of a pair', async () => {
    const variant = 'function-after[_merge_instruction_into_kwargs(), function-wrap[__log_extra_fields__()]]';
    const entries = ['queries', 'documents', 'data_1', 'data_2', 'text_2'].map(
      (name) => `  {'type': 'missing', 'loc': ('body', '${variant}', '${name}'), 'msg': 'Field required', 'input': {}}`,
    );
    answerWith(400, envelope(`5 validation errors:\n${entries.join('\n')}`, `body.${variant}.queries`, 'Bad Request'));
    const error = await errorOf(await bench.post('/v1/score', { model: 'rank', text_1: 'x' }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_request_error', param: 'text_2' });
  });

  it('names the missing input of an embedding', async () => {
    const message =
      "7 validation errors:\n  {'type': 'missing', 'loc': ('body', 'function-wrap[__log_extra_fields__()]', 'input'), 'msg': 'Field required', 'input': {'model': 'smollm2-135m'}}\n  {'type': 'missing', 'loc': ('body', 'function-wrap[__log_extra_fields__()]', 'messages'), 'msg': 'Field required', 'input': {'model': 'smollm2-135m'}}";
    answerWith(400, envelope(message, 'body.function-wrap[__log_extra_fields__()].input', 'Bad Request'));
    const error = await errorOf(await bench.post('/v1/embeddings', { model: 'embed' }));
    expect(error).toMatchObject({ status: 400, code: 'invalid_request_error' });
    expect(error.message).not.toMatch(leaks);
  });
});

describe('a requests-per-minute limit', () => {
  it('counts requests that the engine refused, and no request that the gateway refused', async () => {
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

describe("an engine error that is not the client's fault", () => {
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
  ])("returns upstream_error without the engine's words: %s", async (_, status, body, expected) => {
    answerWith(status, body, vllmHeaders);
    const error = await errorOf(await bench.chat({ stream: true }));
    expect(error).toMatchObject({ status: expected, code: 'upstream_error', type: 'upstream_error', param: null });
    expect(error.message).not.toMatch(/nope|EngineCore|futures|scaling|Unauthorized/);
  });

  it.each([
    ['an object', '{"error":{"message":"EngineCore says no","code":500}}'],
    ['a text', '{"id":"x","error":"EngineCore says no"}'],
    ['beside an empty usage', '{"usage":null,"error":{"message":"EngineCore says no"}}'],
  ])('returns 502 for an error under status 200: %s', async (_, body) => {
    answerWith(200, body, vllmHeaders);
    const got = await bench.chat({});
    expect(await errorOf(got.clone())).toMatchObject({ status: 502, code: 'upstream_error', type: 'upstream_error' });
    expect(await got.text()).not.toContain('EngineCore');
    expect(await bench.recordOf(got)).toMatchObject({ status: 502, outcome: 'failed', cost: '0' });
  });

  it('forwards an answer with "error": null, and adds the usage that is billed', async () => {
    const body = '{"id":"x","error":null,"choices":[]}';
    answerWith(200, body, vllmHeaders);
    const got = await bench.chat({});
    expect(got.status).toBe(200);
    const usage = { prompt_tokens: 0, completion_tokens: 0, total_tokens: 0 };
    expect(await got.json()).toMatchObject({ ...(JSON.parse(body) as object), usage });
  });

  it.each([
    [301, 502],
    [302, 502],
    [308, 502],
    [400, 502],
    [401, 502],
    [402, 502],
    [403, 502],
    [404, 502],
    [405, 502],
    [407, 502],
    [408, 504],
    [413, 413],
    [421, 502],
    [425, 503],
    [429, 503],
    [431, 502],
    [451, 502],
    [500, 502],
    [502, 502],
    [503, 503],
    [504, 504],
    [520, 502],
    [522, 504],
    [524, 504],
    [529, 503],
  ])("maps a proxy's HTML page of status %i to %i", async (status, expected) => {
    const page = `<html><head><title>${status}</title></head><body>nginx/1.27 at 10.0.0.7</body></html>`;
    answerWith(status, page, ['content-type: text/html', 'location: http://10.0.0.7/', 'server: nginx']);
    for (const stream of [true, false]) {
      const got = await bench.chat({ stream });
      expect([got.headers.get('location'), got.headers.get('server')]).toEqual([null, null]);
      expect(got.headers.get('retry-after')).toBe(expected === 503 ? '5' : null);
      const error = await errorOf(got);
      const code = expected === 413 ? 'request_too_large' : 'upstream_error';
      expect(error).toMatchObject({ status: expected, code, param: null });
      expect(error.message).not.toMatch(leaks);
      expect(await bench.recordOf(got)).toMatchObject({ outcome: 'failed', reason: code, cost: '0' });
    }
  });

  it('keeps a valid Retry-After of the engine', async () => {
    for (const [line, seconds] of [
      ['retry-after: 7', '7'],
      ['retry-after: 0', '1'],
      ['retry-after: Wed, 21 Oct 2099 07:28:00 GMT', '5'],
      ['retry-after: Wed, 21 Oct 2015 07:28:00 GMT', '1'],
      ['retry-after: soon', '5'],
      ['x-nothing: 1', '5'],
    ] as const) {
      answerWith(429, '{}', [line]);
      const got = await bench.chat({});
      expect(got.status).toBe(503);
      expect(got.headers.get('retry-after')).toBe(seconds);
    }
  });
});
