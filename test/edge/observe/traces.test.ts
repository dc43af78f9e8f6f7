import { createServer, type IncomingHttpHeaders } from 'node:http';
import { once } from 'node:events';
import { SpanKind, SpanStatusCode, trace } from '@opentelemetry/api';
import { InMemorySpanExporter, SimpleSpanProcessor, TracerProvider, type ReadableSpan } from '@opentelemetry/sdk-trace';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { chatPath, eventually, externalFile, standinFile, useInference } from '#test/inference/inference-gateway.ts';

/** As an operator has it: a real SDK, registered before the gateway is there. */
const exporter = new InMemorySpanExporter();
trace.setGlobalTracerProvider(new TracerProvider({ spanProcessors: [new SimpleSpanProcessor({ exporter })] }));
beforeEach(() => exporter.reset());
afterAll(() => trace.disable());

const seen: IncomingHttpHeaders[] = [];
const usage = {
  prompt_tokens: 11,
  completion_tokens: 3,
  total_tokens: 14,
  prompt_tokens_details: { cached_tokens: 4 },
};
const engine = createServer((incoming, outgoing) => {
  // Only of clients: the gateway asks for /health and /metrics by itself.
  if (incoming.method === 'POST') seen.push(incoming.headers);
  incoming.resume();
  const choices = [{ index: 0, message: { role: 'assistant', content: 'Hi' }, finish_reason: 'stop' }];
  outgoing.setHeader('content-type', 'application/json');
  outgoing.end(JSON.stringify({ id: 'chatcmpl-1', object: 'chat.completion', model: 'm', choices, usage }));
});
afterAll(() => void engine.close());

const bench = useInference(async () => {
  engine.listen(0, '127.0.0.1');
  await once(engine, 'listening');
  const address = engine.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  return {
    engines: {
      chat: externalFile('chat', `http://127.0.0.1:${port}`, { lines: ['kind: vllm'] }),
      failing: standinFile('failing', { lines: ['fallbacks: [chat]'] }),
      embed: standinFile('embed', { taskType: 'embedding' }),
    },
  };
});

const traceId = '0af7651916cd43dd8448eb211c80319c';
const spanId = 'b7ad6b7169203331';
const traceparent = `00-${traceId}-${spanId}-01`;

/** The spans of a request, once the last of them, the one of the server, has ended: that one, then the others. */
async function spansOf(answer: Response): Promise<ReadableSpan[]> {
  await answer.text();
  const id = answer.headers.get('x-request-id');
  const server = await eventually(() => {
    const ofRequest = exporter.getFinishedSpans().find((span) => span.attributes['headgate.request.id'] === id);
    // The line in the log comes right after it.
    const isLogged = bench.gateway.logLines.some((line) => line.includes(id ?? 'none'));
    return Promise.resolve(isLogged ? (ofRequest ?? null) : null);
  });
  const { traceId: own } = server.spanContext();
  return [
    server,
    ...exporter.getFinishedSpans().filter((span) => span !== server && span.spanContext().traceId === own),
  ];
}

describe('a traced request', () => {
  it.each(['garbage', `${traceparent}-more`, `00-${'0'.repeat(32)}-${spanId}-01`, 'ÿ'])(
    'is served and begins its own trace with the invalid traceparent %j',
    async (bad) => {
      const answer = await bench.chat({}, { headers: { traceparent: bad, tracestate: 'a=b' } });
      expect(answer.status).toBe(200);
      const [server] = await spansOf(answer);
      expect(server?.parentSpanContext).toBe(undefined);
      expect(server?.spanContext().traceId).toMatch(/^[0-9a-f]{32}$/);
      expect(server?.spanContext().traceId).not.toBe(traceId);
      expect(seen.at(-1)?.['traceparent']).toContain(server?.spanContext().traceId);
      expect(seen.at(-1)?.['tracestate']).toBe(undefined);
    },
  );

  it("continues the caller's trace, with its own span and one for the engine, which gets the trace too", async () => {
    const [server, client, ...more] = await spansOf(
      await bench.chat({}, { headers: { traceparent, tracestate: 'vendor=1' } }),
    );
    expect(more).toEqual([]);
    expect([server?.name, server?.kind]).toEqual([`POST ${chatPath}`, SpanKind.SERVER]);
    expect(server?.parentSpanContext).toMatchObject({ traceId, spanId, isRemote: true });
    expect([client?.name, client?.kind]).toEqual(['chat chat', SpanKind.CLIENT]);
    expect(client?.parentSpanContext?.spanId).toBe(server?.spanContext().spanId);
    expect(seen.at(-1)?.['traceparent']).toBe(`00-${traceId}-${client?.spanContext().spanId}-01`);
    expect(seen.at(-1)?.['tracestate']).toBe('vendor=1');
  });

  it('has the attributes of the semantic conventions', async () => {
    const [server, client] = await spansOf(await bench.chat({}));
    const counts = { 'gen_ai.usage.input_tokens': 11, 'gen_ai.usage.output_tokens': 3 };
    expect(server?.attributes).toMatchObject({
      ...counts,
      'gen_ai.usage.cache_read.input_tokens': 4,
      'http.request.method': 'POST',
      'http.route': chatPath,
      'http.response.status_code': 200,
      'gen_ai.operation.name': 'chat',
      'gen_ai.request.model': 'chat',
    });
    expect(client?.attributes).toMatchObject({
      ...counts,
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'vllm',
      'gen_ai.request.model': 'chat',
    });
    expect(server?.status.code).toBe(SpanStatusCode.UNSET);
  });

  it('has one span per part of many texts, all children of one span', async () => {
    const input = Array.from({ length: 300 }, (_, index) => `text ${index}`);
    const answer = await bench.post('/v1/embeddings', { model: 'embed', input });
    expect(answer.status).toBe(200);
    const [server, ...parts] = await spansOf(answer);
    expect(server?.attributes).toMatchObject({ 'gen_ai.usage.input_tokens': 900 });
    expect(parts.map(({ name }) => name)).toEqual(Array.from({ length: 3 }, () => 'embeddings embed'));
    for (const part of parts) {
      expect(part.parentSpanContext?.spanId).toBe(server?.spanContext().spanId);
      expect(part.attributes).toMatchObject({ 'gen_ai.usage.input_tokens': 300 });
      expect(part.ended).toBe(true);
    }
  });

  it('has the error code when it is rejected, without the status error', async () => {
    const [server, ...more] = await spansOf(await bench.chat({ model: 'made-up' }));
    expect(more).toEqual([]);
    expect(server?.attributes).toMatchObject({ 'http.response.status_code': 400, 'error.type': 'model_not_found' });
    expect(server?.attributes).not.toHaveProperty('gen_ai.request.model');
    expect(server?.status.code).toBe(SpanStatusCode.UNSET);
  });

  it('names both models for a fallback, with one span per engine', async () => {
    const headers = { 'x-headgate-allow-fallback': 'true' };
    const answer = await bench.chat({ model: 'failing', standin: { status: 500 } }, { headers });
    expect([answer.status, answer.headers.get('x-headgate-fallback')]).toEqual([200, 'chat']);
    const [server, ...clients] = await spansOf(answer);
    expect(server?.attributes).toMatchObject({ 'gen_ai.request.model': 'failing', 'gen_ai.response.model': 'chat' });
    expect(server?.status.code).toBe(SpanStatusCode.UNSET);
    const ends = clients.map(({ name, status }) => [name, status.code]);
    expect(ends).toEqual([
      ['chat failing', SpanStatusCode.ERROR],
      ['chat chat', SpanStatusCode.UNSET],
    ]);
  });

  it('has an error on both spans when the engine fails', async () => {
    const spans = await spansOf(await bench.chat({ model: 'failing', standin: { status: 500 } }));
    expect(spans).toHaveLength(2);
    for (const { status, attributes } of spans) {
      expect(status.code).toBe(SpanStatusCode.ERROR);
      expect(attributes).toMatchObject({ 'error.type': 'upstream_error' });
    }
    expect(spans[0]?.attributes).toMatchObject({ 'http.response.status_code': 502 });
  });

  it('has its trace id on its log line', async () => {
    const answer = await bench.chat({}, { headers: { traceparent } });
    const [server] = await spansOf(answer);
    const line = bench.gateway.logLines.find((each) => each.includes(answer.headers.get('x-request-id') ?? 'none'));
    expect(JSON.parse(line ?? '{}').traceId).toBe(server?.spanContext().traceId);
  });
});
