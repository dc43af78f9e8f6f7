import { describe, expect, it } from 'vitest';
import { type Body, chatPath, errorOf, json, standinFile, useInference } from '#test/inference/inference-gateway.ts';

const bench = useInference(() => ({
  engines: {
    chat: standinFile('chat', { flags: ['--output-tokens', '2'] }),
    embed: standinFile('embed', { taskType: 'embedding' }),
    open: standinFile('open', {
      flags: ['--output-tokens', '2'],
      lines: ['allow: [priority, request_id, session_id, best_of]', 'max_n: 2', 'media_domains: [Media.Example.org]'],
    }),
  },
}));

/** The error for a body of these bytes. */
async function refusalOf(body: string | Buffer, path = chatPath): Promise<Body> {
  const headers = { ...json, authorization: `Bearer ${bench.gateway.key}` };
  const answer = await fetch(new URL(path, bench.gateway.url), { method: 'POST', headers, body: Buffer.from(body) });
  return errorOf(answer);
}

const chatText = (more: string): string => `{"model":"chat","messages":[{"role":"user","content":"x"}]${more}}`;

describe('a malformed request body', () => {
  it.each([
    ['nothing', '', 'no body'],
    ['blank', '  \n', 'not a valid JSON object'],
    ['broken', '{"model":"chat",', 'not a valid JSON object'],
    ['cut in a string', '{"model":"cha', 'not a valid JSON object'],
    ['an array', '[{"model":"chat"}]', 'not a valid JSON object'],
    ['a string', '"chat"', 'not a valid JSON object'],
    ['null', 'null', 'not a valid JSON object'],
    ['two objects', '{"model":"chat"}{"model":"chat"}', 'unexpected content after'],
    ['with a byte order mark', `\uFEFF${chatText('')}`, 'not a valid JSON object'],
    ['with a key without quotes', '{model:"chat"}', 'not a valid JSON object'],
    ['with a NUL between its members', '{"model":"chat",\0"n":1}', 'not a valid JSON object'],
  ])('returns 400: %s', async (_, body, said) => {
    const error = await refusalOf(body);
    expect(error).toMatchObject({ status: 400, code: 'invalid_request_error', type: 'invalid_request_error' });
    expect(error.message).toContain(said);
  });

  it('returns 400 when it is not UTF-8', async () => {
    for (const bytes of [[0xff], [0xc3, 0x28], [0xed, 0xa0, 0x80], [0xc0, 0xaf]]) {
      const body = Buffer.concat([Buffer.from('{"model":"chat","x":"'), Buffer.from(bytes), Buffer.from('"}')]);
      const error = await refusalOf(body);
      expect(error).toMatchObject({ status: 400, code: 'invalid_request_error' });
      expect(error.message).toContain('UTF-8');
    }
  });

  it('returns 400 when it has a field twice, also when one of the names is escaped', async () => {
    for (const [more, param] of [
      [',"model":"embed"', 'model'],
      [',"mod\\u0065l":"embed"', 'model'],
      [',"max_tokens":1,"max\\u005ftokens":9000', 'max_tokens'],
      [',"stream":false,"stream":true', 'stream'],
      [',"anything":1,"anything":1', 'anything'],
      [',"":1,"":2', ''],
    ] as const) {
      const error = await refusalOf(chatText(more));
      expect(error).toMatchObject({ status: 400, code: 'invalid_request_error', param });
      expect(error.message).toContain('twice');
    }
  });
});

describe('a field of the wrong type', () => {
  it.each([
    ['stream', '"true"'],
    ['stream', '1'],
    ['max_tokens', '"16"'],
    ['max_tokens', '1.5'],
    ['max_tokens', '-1'],
    ['max_tokens', '6000.5'],
    ['max_tokens', '1e-1'],
    ['max_tokens', '1e15'],
    ['max_tokens', '99999999999999999999'],
    ['max_completion_tokens', 'true'],
    ['max_completion_tokens', '[16]'],
    ['n', '0'],
    ['n', '"2"'],
    ['n', '{}'],
  ])('returns 400 invalid_value with the field in param: %s: %s', async (field, value) => {
    expect(await refusalOf(chatText(`,"${field}":${value}`))).toMatchObject({
      status: 400,
      code: 'invalid_value',
      type: 'invalid_request_error',
      param: field,
    });
  });

  // A real vLLM 0.29 takes each of these.
  it.each([
    [chatPath, chatText(',"max_tokens":4.0')],
    [chatPath, chatText(',"max_tokens":1e1')],
    [chatPath, chatText(',"max_completion_tokens":40E-1')],
    [chatPath, chatText(',"n":1.0')],
    [chatPath, chatText(',"best_of":1.0')],
    ['/v1/completions', '{"model":"chat","prompt":"x","max_tokens":4.0,"n":1.0}'],
    ['/v1/responses', '{"model":"chat","input":"x","max_output_tokens":16.0}'],
    ['/v1/messages', '{"model":"chat","messages":[{"role":"user","content":"x"}],"max_tokens":4e0}'],
  ])('is accepted as an integer: %s %s', async (path, body) => {
    const headers = { ...json, authorization: `Bearer ${bench.gateway.key}` };
    const answer = await fetch(new URL(path, bench.gateway.url), { method: 'POST', headers, body });
    expect(answer.status, await answer.text()).toBe(200);
  });

  it.each([
    ['"x"', 'stream_options'],
    ['[]', 'stream_options'],
    ['1', 'stream_options'],
    ['{"include_usage":1}', 'stream_options.include_usage'],
    ['{"include_usage":"true"}', 'stream_options.include_usage'],
    ['{"include_usage":true,"continuous_usage_stats":{}}', 'stream_options.continuous_usage_stats'],
  ])('returns 400 invalid_value with the field in param for stream_options: %s', async (value, param) => {
    const error = await refusalOf(chatText(`,"stream":true,"stream_options":${value}`));
    expect(error).toMatchObject({ status: 400, code: 'invalid_value', param });
    expect((await bench.chat({ stream: true, stream_options: { include_usage: null } })).status).toBe(200);
    expect((await bench.chat({ stream: true, stream_options: null })).status).toBe(200);
  });

  it('returns 400 for a model that is a number, an object or has a NUL', async () => {
    expect(await refusalOf('{"model":5}')).toMatchObject({ status: 400, code: 'invalid_value', param: 'model' });
    expect(await refusalOf('{"model":{}}')).toMatchObject({ status: 400, code: 'invalid_value', param: 'model' });
    const nul = await refusalOf('{"model":"chat\\u0000"}');
    expect(nul).toMatchObject({ status: 400, code: 'model_not_found', param: 'model' });
    expect(nul.message).not.toContain('\0');
  });

  it('returns 400 for a broken value that no later parser could read', async () => {
    for (const more of [',"stream_options":{"a":tru}', ',"usage":{,}', ',"model2":{"a" 1}']) {
      expect((await refusalOf(chatText(more))).status).toBe(400);
    }
    expect(await refusalOf('{"model":"chat","prompt":[1,,2]}', '/v1/completions')).toMatchObject({ status: 400 });
  });
});

describe('a field that is not forwarded', () => {
  const refused = { status: 400, code: 'unsupported_parameter', type: 'invalid_request_error' };

  it.each([
    ['priority', -1],
    ['request_id', 'mine'],
    ['session_id', 's'],
    ['kv_transfer_params', {}],
    ['ec_transfer_params', {}],
    ['prompt_embeds', 'AAAA'],
    ['chat_template', '{{ x }}'],
    ['best_of', 2],
  ])('returns 400 for %s unless it is null or the engine file allows it', async (field, value) => {
    expect(await errorOf(await bench.chat({ [field]: value }))).toMatchObject({ ...refused, param: field });
    expect((await bench.chat({ [field]: null })).status).toBe(200);
    const isAllowed = ['priority', 'request_id', 'session_id', 'best_of'].includes(field);
    expect((await bench.chat({ model: 'open', [field]: value })).status).toBe(isAllowed ? 200 : 400);
  });

  it.each([
    ['best_of', 1],
    ['priority', 0],
    ['logits_processors', []],
    ['media_io_kwargs', {}],
    ['mm_processor_kwargs', {}],
    ['vllm_xargs', {}],
  ])('accepts %s with a value that requests nothing', async (field, value) => {
    expect((await bench.chat({ [field]: value })).status).toBe(200);
  });

  it('returns 400 also when its name is escaped', async () => {
    expect(await refusalOf(chatText(',"pri\\u006frity":-1'))).toMatchObject({ ...refused, param: 'priority' });
  });

  it('returns 400 for embedding formats whose answer has no token count', async () => {
    for (const format of ['bytes', 'bytes_only', 'byt\\u0065s']) {
      const body = `{"model":"embed","input":"x","encoding_format":"${format}"}`;
      expect(await refusalOf(body, '/v1/embeddings')).toMatchObject({ ...refused, param: 'encoding_format' });
    }
    const taken = await bench.post('/v1/embeddings', { model: 'embed', input: 'x', encoding_format: 'base64' });
    expect(taken.status).toBe(200);
  });

  it('returns 400 for more choices than the setting or the engine file allows', async () => {
    expect(await errorOf(await bench.chat({ n: 9 }))).toMatchObject({ ...refused, param: 'n' });
    expect(await errorOf(await bench.chat({ model: 'open', n: 3 }))).toMatchObject({ ...refused, param: 'n' });
    expect((await bench.chat({ n: 8 })).status).toBe(200);
    expect((await bench.chat({ model: 'open', n: 2 })).status).toBe(200);
  });
});

describe('media that the engine would fetch', () => {
  const withPart = (model: string, part: string): string =>
    `{"model":"${model}","messages":[{"role":"user","content":[{"type":"text","text":"x"},${part}]}],"max_tokens":2}`;
  const image = (url: string): string => `{"type":"image_url","image_url":{"url":"${url}"}}`;

  it.each([
    ['by http', image('http://169.254.169.254/latest')],
    ['by https', image('https://example.org/x.png')],
    ['in upper case', image('HTTPS://EXAMPLE.ORG/x.png')],
    ['from a file', image('file:///etc/passwd')],
    ['without a scheme', image('//example.org/x.png')],
    ['from a path', image('/etc/passwd')],
    ['with escaped characters', image('h\\u0074tp:\\/\\/example.org')],
    ['behind an escaped key', '{"type":"image_url","image\\u005furl":{"ur\\u006c":"http://example.org"}}'],
    ['as a plain string', '{"type":"input_image","image_url":"http://example.org"}'],
    ['as audio', '{"type":"audio_url","audio_url":{"url":"http://example.org"}}'],
    ['as video', '{"type":"video_url","video_url":{"url":"http://example.org"}}'],
    ['with a blank before data:', image(' data:image/png;base64,AAAA')],
  ])('returns 400: %s', async (_, part) => {
    const message = expect.stringContaining('Media cannot be fetched');
    const wanted = { status: 400, code: 'unsupported_parameter', param: 'messages', message };
    expect(await refusalOf(withPart('chat', part))).toMatchObject(wanted);
    expect(await refusalOf(withPart('open', part))).toMatchObject(wanted);
  });

  it.each([
    ['another host', 'https://evil.org/x'],
    ['a host that ends in the name', 'https://evilmedia.example.org/x'],
    ['a host below the name', 'https://sub.media.example.org/x'],
    ['the name as credentials', 'https://media.example.org@evil.org/x'],
    ['credentials before the name', 'https://user:secret@media.example.org/x'],
    ['a backslash that parsers read differently', 'https://media.example.org\\\\@evil.org/x'],
    ['a backslash before the host', 'https:\\\\media.example.org/x'],
    ['a tab in the host', 'https://media.example.org\\t.evil.org/x'],
    ['one slash only', 'https:/media.example.org/x'],
    ['another scheme', 'ftp://media.example.org/x'],
  ])('returns 400 for a URL that imitates an allowed domain: %s', async (_, url) => {
    const message = expect.stringContaining('Media cannot be fetched');
    const wanted = { status: 400, code: 'unsupported_parameter', param: 'messages', message };
    expect(await refusalOf(withPart('open', image(url)))).toMatchObject(wanted);
  });

  it('is forwarded when it is a data: URL or of an allowed domain', async () => {
    for (const url of ['data:image/png;base64,AAAA', 'DATA:image/png;base64,AAAA']) {
      // The engine has no eyes, and says so.
      const error = await refusalOf(withPart('chat', image(url)));
      expect(error).toMatchObject({ status: 400, message: 'This model reads text only.', param: 'messages' });
    }
    for (const url of [
      'https://media.example.org/x.png',
      'http://MEDIA.example.ORG:8080/x?y#z',
      'https://media.example.org',
    ]) {
      const error = await refusalOf(withPart('open', image(url)));
      expect(error).toMatchObject({ status: 400, message: 'This model reads text only.' });
    }
  });

  it('does not include an address within text', async () => {
    const content = [{ type: 'text', text: 'see "image_url": http://example.org' }];
    expect((await bench.chat({ messages: [{ role: 'user', content }] })).status).toBe(200);
  });
});
