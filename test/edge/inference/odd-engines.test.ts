import { afterAll, describe, expect, it } from 'vitest';
import { type ByteServer, startByteServer } from '#test/proxy/byte-server.ts';
import { type Body, chatPath, externalFile, useInference } from '#test/inference/inference-gateway.ts';

/** An engine that somebody else runs answers with the bytes that stand in the request itself. */
let engine: ByteServer | null = null;

const bench = useInference(async () => {
  engine = await startByteServer({
    transport: 'tcp',
    answer({ body, socket }) {
      // Its counters are asked for without a body.
      if (body === '') return void socket.end('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n');
      const { script = {} }: Body = JSON.parse(body);
      const bytes = Buffer.from(script.bytes ?? '', 'base64');
      void send(bytes, script.step ?? bytes.length, socket).then(() => {
        if (script.close === true) socket.end();
      });
    },
  });
  const url = `http://127.0.0.1:${engine.endpoint.port}`;
  return {
    engines: {
      odd: externalFile('team/odd', url),
      renamed: externalFile('renamed', url, { lines: ['upstream_model: up/stream'] }),
    },
  };
});
afterAll(() => engine?.close());

interface Writer {
  write(bytes: Buffer): boolean;
}

async function send(bytes: Buffer, step: number, socket: Writer): Promise<void> {
  for (let at = 0; at < bytes.length; at += step) {
    socket.write(bytes.subarray(at, at + step));
    await new Promise((resolve) => setImmediate(resolve));
  }
}

interface Shape {
  readonly version?: string;
  readonly type?: string;
  readonly headers?: string;
  /** How the end of the body is marked. */
  readonly framing?: 'length' | 'chunked' | 'close';
  /** Bytes a write. */
  readonly step?: number;
}

/** The script of an answer of status 200 with that body. */
function scripted(body: string, shape: Shape = {}): object {
  const { version = '1.1', type = 'text/event-stream', headers = '', framing = 'length', step } = shape;
  const text = Buffer.from(body, 'utf8').toString('latin1');
  const length = framing === 'length' ? `Content-Length: ${text.length}\r\n` : '';
  const chunks = framing === 'chunked' ? 'Transfer-Encoding: chunked\r\n' : '';
  const framed =
    framing === 'chunked' ? `${text.length.toString(16)};x=y\r\n${text}\r\n0\r\nX-Trailer: z\r\n\r\n` : text;
  const bytes = `HTTP/${version} 200 OK\r\nContent-Type: ${type}\r\n${headers}${length}${chunks}\r\n${framed}`;
  const base64 = Buffer.from(bytes, 'latin1').toString('base64');
  return { bytes: base64, close: framing === 'close', ...(step !== undefined && { step }) };
}

async function ask(script: object, body: object = {}): Promise<{ status: number; text: string; record: Body }> {
  const answer = await bench.post(chatPath, { model: 'team/odd', messages: [], stream: true, ...body, script });
  const text = await answer.text();
  return { status: answer.status, text, record: await bench.recordOf(answer) };
}

const frame = (body: object | string): string => `data: ${typeof body === 'string' ? body : JSON.stringify(body)}\n\n`;
const usage = { prompt_tokens: 10, completion_tokens: 5, total_tokens: 15 };
const choice = (content: string, finish: string | null = null): object => ({
  id: 'x',
  model: 'team/odd',
  choices: [{ index: 0, delta: { content }, finish_reason: finish }],
});
const chunks = frame(choice('é 🦙 ,"usage":{"x":1}')) + frame(choice('', 'stop'));
const usageChunk = frame({ id: 'x', model: 'team/odd', choices: [], usage });
const done = 'data: [DONE]\n\n';
const billed = { outcome: 'completed', input_tokens: 10, output_tokens: 5, usage_source: 'engine', cost: '0.000003' };

describe('a stream from an engine of any kind, unchanged except for its usage', () => {
  it.each<[string, Shape]>([
    ['by a length', {}],
    ['in chunks with extensions and a trailer', { framing: 'chunked' }],
    ['that ends with its connection', { framing: 'close' }],
    ['over HTTP/1.0', { version: '1.0', framing: 'close' }],
    ['byte by byte', { step: 1 }],
    ['byte by byte in chunks', { framing: 'chunked', step: 1 }],
    ['with a type in capitals', { type: 'Text/Event-Stream; Charset=UTF-8' }],
  ])('is accepted %s', async (_, shape) => {
    for (const [options, expected] of [
      [{}, chunks + done],
      [{ stream_options: { include_usage: true } }, chunks + usageChunk + done],
    ] as const) {
      const { text, record } = await ask(scripted(chunks + usageChunk + done, shape), options);
      expect(text).toBe(expected);
      expect(record).toMatchObject(billed);
    }
  });

  it('moves usage from the final answer chunk to a usage chunk when the client requested it', async () => {
    const last = { ...choice('', 'stop'), usage };
    const [begin = ''] = chunks.split(/(?<=\n\n)/);
    const asked = { stream_options: { include_usage: true } };
    const end = frame(choice('', 'stop'));
    for (const [options, shown] of [
      [{}, null],
      [asked, usage],
      [{ usage: { include: true } }, { ...usage, cost: 0.000003 }],
    ] as const) {
      const { text, record } = await ask(scripted(begin + frame(last) + done), options);
      expect(record).toMatchObject(billed);
      expect(text.startsWith(begin + end)).toBe(true);
      const [made = '', ...rest] = text.slice((begin + end).length).split(/(?<=\n\n)/);
      expect([shown === null ? made : '', ...rest].join('')).toBe(done);
      if (shown === null) continue;
      expect(JSON.parse(made.slice('data: '.length))).toMatchObject({ model: 'team/odd', choices: [], usage: shown });
    }
    // A running count is no final one, even if none other comes.
    const running = frame({ ...choice('x'), usage: { ...usage, completion_tokens: 1 } });
    const { text } = await ask(scripted(running + frame(last) + usageChunk + done), asked);
    expect(text).toBe(frame(choice('x')) + frame(choice('', 'stop')) + usageChunk + done);
  });

  it('accepts carriage returns, no or many spaces after "data:", and comments in between', async () => {
    for (const change of [
      (text: string) => text.replaceAll('\n', '\r\n'),
      (text: string) => text.replaceAll('data: ', 'data:'),
      (text: string) => text.replaceAll('data: ', 'data:  '),
      (text: string) => text.replaceAll('data: ', 'data:\t'),
      (text: string) => text.replaceAll('data: ', 'event: chunk\ndata: \t  '),
      (text: string) => text.replaceAll('data: ', ': "usage":{}\nid: 3\ndata: '),
    ]) {
      const { text, record } = await ask(scripted(change(chunks + usageChunk + done), { step: 7 }));
      expect(text).toBe(change(chunks) + done);
      expect(record).toMatchObject(billed);
    }
  });

  it('accepts spaces before the colon of a finish reason', async () => {
    const change = (text: string): string => text.replaceAll('"finish_reason":', '"finish_reason" : ');
    const { text, record } = await ask(scripted(change(chunks + usageChunk + done)));
    expect(text).toBe(change(chunks) + done);
    expect(record).toMatchObject({ ...billed, reason: null });
  });

  it('accepts a last line without an empty line after it', async () => {
    for (const end of [
      'data: [DONE]\n',
      'data: [DONE]',
      'data:[DONE]\r\n',
      'data:  [DONE]',
      'data:\t[DONE]\n',
      'data\ndata: [DONE]',
    ]) {
      const { text, record } = await ask(scripted(chunks + usageChunk + end));
      expect(text).toBe(chunks + done);
      expect(record).toMatchObject(billed);
    }
  });
});

it.each([0, 1])('counts each of three choices whose index comes after %d tool calls', async (calls) => {
  const tools = Array.from({ length: calls }, (_, index) => ({ index, function: { arguments: 'a' } }));
  const indexes = [0, 1, 2];
  const begin = indexes.map((index) =>
    frame({ choices: [{ delta: { tool_calls: tools }, index, finish_reason: 'stop' }], usage }),
  );
  const { record } = await ask(scripted(begin.join('') + done), { n: 3 });
  expect(record).toMatchObject({ outcome: 'completed', usage_source: 'last_seen', output_tokens: 15 });
});

describe('the model in an answer', () => {
  const other = (text: string): string => text.replaceAll('team/odd', '/srv/models/odd.gguf');
  const json = JSON.stringify({ ...choice('"model":"x"', 'stop'), usage });

  it('is the catalog id for any name that the engine sends', async () => {
    const stream = await ask(scripted(other(chunks + usageChunk + done)), { stream_options: { include_usage: true } });
    expect(stream.text).toBe(chunks + usageChunk + done);
    expect((await ask(scripted(other(json), { type: 'application/json' }), { stream: false })).text).toBe(json);
    const renamed = await ask(scripted(other(json), { type: 'application/json' }), { stream: false, model: 'renamed' });
    expect(renamed.text).toBe(json.replace('team/odd', 'renamed'));
  });

  it.each([
    ['that name in another member as well', '{"extra":{"model":"team/odd"},"model":"/srv/odd.gguf",'],
    ['blanks before the colon', '{"extra":{"model":"team/odd"},"model" : "/srv/odd.gguf",'],
  ])('is the catalog id with %s', async (_, start) => {
    const body = JSON.stringify({ ...choice('hi', 'stop'), usage }).replace('{"id":"x","model":"team/odd",', start);
    const answer = await ask(scripted(body, { type: 'application/json' }), { stream: false });
    expect(JSON.parse(answer.text)).toMatchObject({ model: 'team/odd', extra: { model: 'team/odd' } });
    const stream = await ask(scripted(frame(body) + done), { stream_options: { include_usage: true } });
    expect(stream.text).not.toContain('/srv');
    expect(stream.text).toContain('"content":"hi"');
  });
});

describe('an error that an engine sends under status 200', () => {
  it.each([
    ['in a JSON answer', false, '{"error":{"message":"at /srv/model.py","code":500}}'],
    ['as a broken JSON answer', false, '{"choices":}'],
    ['in a chunk', true, frame({ ...choice('', 'error'), error: { message: 'at /srv/model.py' } }) + done],
    [
      'in a chunk with blanks before the colon',
      true,
      frame(JSON.stringify(choice('', 'error')).replace('n":"error"', 'n" : "error"')) + done,
    ],
    [
      'in a JSON answer with blanks before the colon',
      false,
      JSON.stringify({ ...choice('', 'error'), usage }).replace('n":"error"', 'n" : "error"'),
    ],
    ['in a chunk that is no JSON', true, frame('{"model":"/srv/model","choices":[{"index":0,]}') + done],
    ['as lines that are no data', true, `Traceback: /srv/model.py\n\n`],
    ['compressed', true, '\x1f\x8b\x08\n\n\x00'],
  ])("is an upstream_error without the engine's words: %s", async (_, stream, body) => {
    const type = stream ? 'text/event-stream' : 'application/json';
    const { status, text, record } = await ask(scripted(body, { type }), { stream });
    expect(status).toBe(502);
    expect(JSON.parse(text).error).toMatchObject({ code: 'upstream_error', type: 'upstream_error' });
    expect(text).not.toContain('/srv');
    expect(record).toMatchObject({ outcome: 'failed', cost: '0' });
  });
});

describe('a message from an engine of another kind', () => {
  const events = (...all: readonly Body[]): string =>
    all.map((event) => `event: ${event.type}\n${frame(event)}`).join('');
  const begun = {
    type: 'message_start',
    message: {
      id: 'm',
      type: 'message',
      role: 'assistant',
      content: [],
      model: '/srv/llama',
      stop_reason: null,
      usage: { input_tokens: 21, cache_read_input_tokens: 16, cache_creation_input_tokens: 2, output_tokens: 1 },
    },
  };
  const block = { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } };
  const text = (word: string): object => ({
    type: 'content_block_delta',
    index: 0,
    delta: { type: 'text_delta', text: word },
  });
  const stop = { type: 'content_block_stop', index: 0 };
  const counted = (count: unknown): object => ({
    type: 'message_delta',
    delta: { stop_reason: 'end_turn', stop_sequence: null },
    usage: count,
  });
  const over = { type: 'message_stop' };
  const whole = (count: unknown): string =>
    events(begun, { type: 'ping' }, block, text('one'), text(' two'), text(' three'), stop, counted(count), over);
  const askMessage = (script: object, body: object = {}, options: object = {}): Promise<Response> =>
    bench.post(
      '/v1/messages',
      { model: 'team/odd', messages: [], stream: true, max_tokens: 9, ...body, script },
      options,
    );

  it('is billed by the counts at its start and end, also when cached', async () => {
    const fields = { name: 'cache', cache_responses: true };
    const { secret: key }: Body = await (await bench.gateway.request('/v1/keys', { body: fields })).json();
    const script = scripted(whole({ output_tokens: 5 }));
    const answer = await askMessage(script, {}, { key });
    expect(await answer.text()).toBe(whole({ output_tokens: 5 }).replace('/srv/llama', 'team/odd'));
    expect(await bench.recordOf(answer)).toMatchObject({
      input_tokens: 39,
      input_cached_tokens: 16,
      output_tokens: 5,
      usage_source: 'engine',
    });
    const kept = await askMessage(script, { stream: false }, { key });
    expect(kept.headers.get('x-headgate-cache')).toBe('hit');
    expect(await kept.json()).toMatchObject({
      content: [{ type: 'text', text: 'one two three' }],
      usage: { ...begun.message.usage, output_tokens: 5 },
    });
  });

  it.each([
    ['null', null],
    ['nothing', {}],
    ['the prompt only', { input_tokens: 21 }],
    ['fewer than none', { input_tokens: 21, output_tokens: -5 }],
    ['a part of one', { output_tokens: 0.5 }],
    ['more than can be', { output_tokens: 1e15 }],
    ['a text', { output_tokens: '5' }],
    ['only a number', 5],
  ])('is counted by its deltas, and complete, when its last count is %s', async (_, count) => {
    const answer = await askMessage(scripted(whole(count)), { usage: { include: true } });
    const last = (await answer.text()).trimEnd().split('\n').at(-1) ?? '';
    expect(JSON.parse(last.slice('data: '.length))).toEqual({ type: 'message_stop' });
    expect(await bench.recordOf(answer)).toMatchObject({
      outcome: 'completed',
      usage_source: 'counted',
      input_tokens: 39,
      output_tokens: 3,
    });
  });
});

it.each([
  ['nothing', {}],
  ['the prompt only', { prompt_tokens: 10 }],
  ['fewer than none', { prompt_tokens: 10, completion_tokens: -5 }],
  ['a part of one', { prompt_tokens: 10, completion_tokens: 0.5 }],
])('bills the count before the last one when the last count is %s', async (_, last) => {
  const running = frame({ ...choice('x'), usage: { prompt_tokens: 10, completion_tokens: 4 } });
  const { record } = await ask(scripted(running + chunks + frame({ id: 'x', choices: [], usage: last }) + done));
  expect(record).toMatchObject({ outcome: 'completed', usage_source: 'last_seen', input_tokens: 10, output_tokens: 4 });
});

it.each([null, {}, { input_tokens: 10 }, { input_tokens: 10, output_tokens: -5 }])(
  'counts a response by its deltas when its last count is %j',
  async (last) => {
    const event = (type: string, more: object): string => `event: ${type}\n${frame({ ...more, type })}`;
    const delta = (word: string): string => event('response.output_text.delta', { delta: word });
    const response = { object: 'response', status: 'completed', model: 'team/odd', output: [], usage: last };
    const body = delta('one') + delta('two') + event('response.completed', { response });
    const script = scripted(body);
    const answer = await bench.post('/v1/responses', { model: 'team/odd', input: 'x', stream: true, script });
    await answer.text();
    expect(await bench.recordOf(answer)).toMatchObject({ usage_source: 'counted', output_tokens: 2 });
  },
);
