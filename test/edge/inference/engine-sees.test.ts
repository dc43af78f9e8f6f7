import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { type ByteServer, type SeenRequest, startByteServer } from '#test/proxy/byte-server.ts';
import {
  chatPath,
  type Body,
  exchangeRaw,
  externalFile,
  framesOf,
  json,
  openOrganization,
  useInference,
} from '#test/inference/inference-gateway.ts';

const engineKey = 'engine-key-0123456789';
let engine: ByteServer | null = null;
let answer = '';

const jsonBody =
  '{"id":"x","model":"upstream/Name","choices":[{"index":0,"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":2}}';
const jsonAnswer = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${jsonBody.length}\r\n\r\n${jsonBody}`;

const bench = useInference(async () => {
  engine = await startByteServer({ transport: 'tcp', answer: ({ socket }) => void socket.write(answer, 'latin1') });
  const url = `http://127.0.0.1:${engine.endpoint.port}/base`;
  return {
    engines: {
      chat: externalFile('chat', url),
      named: externalFile('named', url, { lines: ['upstream_model: upstream/Näme', 'api_key_env: TEST_ENGINE_KEY'] }),
      embed: externalFile('embed', url, { taskType: 'embedding' }),
      vllm: externalFile('vllm', url, { lines: ['kind: vllm'] }),
      drops: externalFile('drops', url, { lines: ['kind: vllm', 'tools: { unserved: drop }'] }),
      other: externalFile('other', url, { lines: ['kind: openai', 'tools: { unserved: drop }'] }),
    },
    env: { TEST_ENGINE_KEY: engineKey },
  };
});
beforeEach(() => {
  answer = jsonAnswer;
});
afterAll(() => engine?.close());

const utf8 = (latin1: string): string => Buffer.from(latin1, 'latin1').toString('utf8');

/** The last request that the engine got from a client: it is asked how it is, too. */
function seen(): SeenRequest {
  const last = engine?.requests.findLast(({ head }) => head.startsWith('POST '));
  if (last === undefined) throw new Error('the engine got no request');
  return last;
}

async function send(body: string, headers: Readonly<Record<string, string>> = {}, path = chatPath): Promise<Response> {
  const all = { ...json, authorization: `Bearer ${bench.gateway.key}`, ...headers };
  return fetch(new URL(path, bench.gateway.url), { method: 'POST', headers: all, body });
}

/** Odd, but JSON: what a reader that re-made it would change. */
const odd = ` { "messages" : [{"role":"user","content":"h\\u00e9 é 🦙 \\/"}],\t"model":"chat" ,"x-unknown":{"b":1e400,"a":1.0,"a":-0},\n"big":12345678901234567890.10,"max_tokens":5} \r\n`;

describe('the body that the engine receives', () => {
  it("equals the client's byte for byte, unknown fields and whitespace included", async () => {
    expect((await send(odd)).status).toBe(200);
    expect(utf8(seen().body)).toBe(odd);
  });

  it('has the bytes of the tools that stay when others are left out', async () => {
    const odd = '{"10":{"maximum":9007199254740993},"2":{"const":1.0,"minimum":1e400},"a":"\\u00e9 é \\/"}';
    const f = `{"type":"function","name":"f", "parameters" : ${odd}}`;
    const space = (tools: string) => `{"type":"namespace","x":1.0,"tools":[${tools}]}`;
    const tools = `[ {"type":"mcp"},${f} , ${space(`{"type":"mcp"},${f}`)},7,{"type":"mcp"}]`;
    await send(`{"model":"drops","input":"x","tools":${tools}}`, {}, '/v1/responses');
    expect(utf8(seen().body)).toContain(`"tools":[${f},${space(f)},7]`);
    const grammar = '"format":{"type":"grammar","definition":"é"}';
    const custom = `{"type":"custom","name":"p","x":1.0,${grammar}}`;
    await send(`{"model":"drops","input":"x","tools":[${custom}]}`, {}, '/v1/responses');
    expect(utf8(seen().body)).toContain(
      '{"type":"custom","name":"p","x":1.0,"description":"Grammar of the input:\\né"}',
    );
  });

  it('has the tools of chat that other engines than vLLM may serve', async () => {
    const kept = '{"function":{"name":"f"}},{"type":"custom","custom":{"name":"c"}}';
    await send(`{"model":"other","messages":[],"tools":[${kept},{"type":"local_shell"}]}`);
    expect(seen().body).toContain(`"tools":[${kept}]`);
  });

  it('differs only in the model when the engine uses another name', async () => {
    for (const name of ['named', 'NAMED', 'The named', 'test/named']) {
      const answered = await send(odd.replace('"chat"', JSON.stringify(name)));
      expect(utf8(seen().body)).toBe(odd.replace('"chat"', '"upstream/Näme"'));
      expect(((await answered.json()) as Body).model).toBe('named');
    }
  });

  it('keeps a limit written with a fraction of 0 or an exponent', async () => {
    for (const limit of ['4.0', '40e-1']) {
      const body = `{"model":"chat","messages":[],"max_tokens":${limit}}`;
      await send(body, { 'x-headgate-max-cost': '0.001' });
      expect(seen().body).toBe(body);
    }
  });

  it('has the catalog id when the client used another name', async () => {
    await send(odd.replace('"chat"', '"the CHAT"'));
    expect(utf8(seen().body)).toBe(odd);
  });

  it('requests running usage in a stream, and keeps the other stream options', async () => {
    const usage = '{"include_usage":true,"continuous_usage_stats":true}';
    await send('{"model":"chat","messages":[],"stream":true}');
    expect(seen().body).toBe(`{"stream_options":${usage},"model":"chat","messages":[],"stream":true}`);
    await send('{"model":"chat","stream_options":null,"stream":true}');
    expect(seen().body).toBe(`{"model":"chat","stream_options":${usage},"stream":true}`);
    await send('{"model":"chat","stream_options":{"include_usage":false,"other":[1]},"stream":true}');
    expect(JSON.parse(seen().body).stream_options).toEqual({
      include_usage: true,
      other: [1],
      continuous_usage_stats: true,
    });
  });

  it('has no usage options when it is not a stream', async () => {
    const body = '{"model":"chat","messages":[],"stream":false,"usage":{"include":true}}';
    await send(body);
    expect(seen().body).toBe(body);
  });

  it("equals the client's for embeddings too", async () => {
    const body = '{"input":["a",  "b"],"stream":"yes","n":0,"model":"embed"}';
    await send(body, {}, '/v1/embeddings');
    expect(seen().body).toBe(body);
  });
});

describe('the output limit that a small wallet sets', () => {
  it('is computed from the whole context for max_tokens: null, and from the default of 16 only when absent', async () => {
    const { key } = await openOrganization(bench.gateway, '0.001');
    const completion = async (more: object): Promise<string | null> => {
      const answered = await bench.post('/v1/completions', { model: 'vllm', prompt: 'x', ...more }, { key });
      expect(answered.status).toBe(200);
      return answered.headers.get('x-headgate-max-tokens');
    };
    expect(await completion({})).toBeNull();
    expect(JSON.parse(seen().body)).not.toHaveProperty('max_tokens');
    const tokens = Number(await completion({ max_tokens: null }));
    expect(tokens).toBeGreaterThan(1000);
    expect(tokens).toBeLessThan(2500);
    expect(JSON.parse(seen().body).max_tokens).toBe(tokens);
  });

  it('replaces both limit fields of a chat', async () => {
    const { key } = await openOrganization(bench.gateway, '0.001');
    const answered = await bench.chat({ max_tokens: 8000, max_completion_tokens: 7000 }, { key });
    const tokens = Number(answered.headers.get('x-headgate-max-tokens'));
    expect(tokens).toBeGreaterThan(1000);
    expect(JSON.parse(seen().body)).toMatchObject({ max_tokens: tokens, max_completion_tokens: tokens });
  });
});

describe('the headers that the engine receives', () => {
  it('are only those of a short list', async () => {
    const traceparent = '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01';
    const answered = await send(odd, {
      traceparent,
      tracestate: 'a=b',
      cookie: 'session=1',
      'x-vllm-priority': '-5',
      'x-session-id': 's',
      'x-data-parallel-rank': '1',
      'x-request-id': 'mine',
      'x-client-request-id': 'mine-too',
      'x-project-id': '',
      'x-forwarded-for': '1.2.3.4',
      'endpoint-load-metrics-format': 'json',
      'user-agent': 'test',
      'x-api-key': 'secret',
    }).catch(() => null);
    // An empty X-Project-ID is rejected, so the request is sent again without it.
    expect(answered?.status).toBe(400);
    const again = await send(odd, {
      traceparent,
      tracestate: 'a=b',
      cookie: 'a=1',
      'x-vllm-priority': '-5',
      'x-request-id': 'mine',
    });
    const [requestLine, ...lines] = seen().head.trimEnd().split('\r\n');
    expect(requestLine).toBe(`POST /base${chatPath} HTTP/1.1`);
    const headers = new Map(
      lines.map((line) => [line.slice(0, line.indexOf(':')).toLowerCase(), line.slice(line.indexOf(':') + 2)]),
    );
    expect([...headers.keys()].toSorted()).toEqual([
      'content-length',
      'content-type',
      'host',
      'traceparent',
      'tracestate',
      'x-request-id',
    ]);
    expect(headers.get('x-request-id')).toBe(again.headers.get('x-request-id'));
    expect(headers.get('traceparent')).toBe(traceparent);
  });

  it("include the engine's own key and never the client's", async () => {
    await send(odd.replace('"chat"', '"named"'));
    expect(seen().head).toContain(`\r\nAuthorization: Bearer ${engineKey}\r\n`);
    for (const { head } of engine?.requests ?? []) expect(head).not.toContain(bench.gateway.key);
  });

  it('omit an invalid trace context', async () => {
    await send(odd, { traceparent: 'zz', tracestate: 'x'.repeat(600) });
    expect(seen().head.toLowerCase()).not.toContain('\r\ntrace');
  });
});

describe('an engine that formats JSON in its own way', () => {
  const streamAnswer = (frames: readonly string[]): string =>
    `HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n${frames.join('')}`;

  it('has its streams counted and ended: spaces after colons, carriage returns and null usage', async () => {
    answer = streamAnswer([
      'data: {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": null}], "usage": null}\r\n\r\n',
      'data: {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": null}\r\n\r\n',
      'data: {"id": "1", "model": "m", "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}\r\n\r\n',
      'data: [DONE]\r\n\r\n',
    ]);
    const answered = await send('{"model":"chat","messages":[],"stream":true}');
    const text = await answered.text();
    expect(text).not.toContain('usage');
    expect(framesOf(text.replaceAll('\r\n', '\n')).map((frame) => frame.choices?.[0]?.delta ?? frame)).toEqual([
      { content: 'a' },
      {},
      '[DONE]',
    ]);
    const record = await bench.record(answered.headers.get('x-request-id') ?? '');
    expect(record).toMatchObject({ outcome: 'completed', input_tokens: 7, output_tokens: 2, usage_source: 'engine' });
  });

  it('returns upstream_error for an unrequested abort', async () => {
    answer = streamAnswer([
      'data: {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "abort"}]}\n\n',
      'data: [DONE]\n\n',
    ]);
    const text = await (await send('{"model":"chat","messages":[],"stream":true}')).text();
    expect(text).toContain('"code":"upstream_error"');
  });

  it('has streams without a count billed by frames with text and an estimated prompt', async () => {
    answer = streamAnswer([
      'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}\n\n',
      'data: [DONE]\n\n',
    ]);
    const sent = '{"model":"chat","messages":[],"stream":true}';
    const answered = await send(sent);
    await answered.text();
    const record = await bench.record(answered.headers.get('x-request-id') ?? '');
    const counted = { input_tokens: Math.ceil(sent.length / 4), output_tokens: 1 };
    const billed = { outcome: 'completed', usage_source: 'counted', ...counted, cost: '0.0000015' };
    expect(record).toMatchObject(billed);
  });

  it('gets a valid usage.cost for any shape of usage', async () => {
    for (const usage of ['{}', '{"prompt_tokens":3,"completion_tokens":2}', '{ "prompt_tokens": 3 }']) {
      const body = `{"choices":[],"usage":${usage}}`;
      answer = `HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
      const got: Body = await (await send('{"model":"chat","messages":[],"usage":{"include":true}}')).json();
      expect(typeof got.usage.cost).toBe('number');
    }
  });
});

describe('a client connection', () => {
  it('serves several requests in turn, also when they are sent at once', async () => {
    const one = `POST ${chatPath} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${bench.gateway.key}\r\nContent-Type: application/json\r\n`;
    const body = '{"model":"chat","messages":[]}';
    const request = `${one}Content-Length: ${body.length}\r\n\r\n${body}`;
    const text = await exchangeRaw(
      bench.gateway.url,
      [request + request + request],
      (got) => got.split('"finish_reason"').length === 4,
    );
    expect(text.match(/HTTP\/1\.1 200 OK/g)).toHaveLength(3);
  });
});
