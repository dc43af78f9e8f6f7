import type { IncomingHttpHeaders } from 'node:http';
import {
  type Attributes,
  type Context,
  createTraceState,
  ProxyTracerProvider,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  trace as traceApi,
  type Tracer,
} from '@opentelemetry/api';
import { readTraceContext, type TraceContext, traceLines } from '#base/metrics/metrics.ts';
import type { Model } from '#core/catalog/catalog.ts';
import { type CallTrace, noTrace, type RequestObserver, type RequestSummary } from '#edge/inference/inference.ts';

/**
 * Creates spans only through the OpenTelemetry API: operators who want spans register an SDK before the gateway starts
 * (`node --import`). Without an SDK, the caller's trace is passed on unchanged, and nothing else happens. Names follow
 * the semantic conventions for HTTP and for generative AI (1.38).
 */
export type StartTrace = RequestObserver['trace'];

/** Creates the tracing. Register an SDK before this call: later ones are ignored. */
export function createTracing(): StartTrace {
  const tracer = findTracer();
  if (tracer === null) return (_endpoint, headers) => passOn(headers);
  return ({ path, operation }, headers, requestId) => {
    const parent = readTraceContext(headers);
    const attributes = {
      'http.request.method': 'POST',
      'http.route': path,
      'url.path': path,
      'url.scheme': 'http',
      'gen_ai.operation.name': operation,
      'headgate.request.id': requestId,
    };
    const options = { kind: SpanKind.SERVER, attributes };
    const context = parent === null ? ROOT_CONTEXT : contextOf(parent);
    return new SpanTrace(tracer, tracer.startSpan(`POST ${path}`, options, context), operation);
  };
}

/** Returns null if no SDK is registered: the API's proxy then has no delegate. */
function findTracer(): Tracer | null {
  const provider = traceApi.getTracerProvider();
  const isEmpty = provider instanceof ProxyTracerProvider && provider.getDelegateTracer('headgate') === undefined;
  return isEmpty ? null : provider.getTracer('headgate');
}

function contextOf({ traceId, spanId, flags, state }: TraceContext): Context {
  const traceState = state === '' ? {} : { traceState: createTraceState(state) };
  return traceApi.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: flags, isRemote: true, ...traceState });
}

function passOn(headers: IncomingHttpHeaders): CallTrace {
  if (headers['traceparent'] === undefined) return noTrace;
  const context = readTraceContext(headers);
  if (context === null) return noTrace;
  const { traceId } = context;
  const trace: CallTrace = { ...noTrace, traceId, toEngine: () => traceLines(context), part: () => trace };
  return trace;
}

/** Spans at engines for a request or one of its parts, with one span per attempt. */
class EngineSpans implements CallTrace {
  readonly traceId: string;
  readonly #tracer: Tracer;
  readonly #server: Span;
  readonly #operation: string;
  #engine: Span | null = null;

  constructor(tracer: Tracer, server: Span, operation: string) {
    this.#tracer = tracer;
    this.#server = server;
    this.#operation = operation;
    this.traceId = server.spanContext().traceId;
  }

  part(): CallTrace {
    return new EngineSpans(this.#tracer, this.#server, this.#operation);
  }

  toEngine(model: Model, replicaId: string): string {
    const attributes = {
      'gen_ai.operation.name': this.#operation,
      'gen_ai.provider.name': model.engine.kind,
      'gen_ai.request.model': model.id,
      'headgate.replica.id': replicaId,
    };
    const options = { kind: SpanKind.CLIENT, attributes };
    const parent = traceApi.setSpan(ROOT_CONTEXT, this.#server);
    const span = this.#tracer.startSpan(`${this.#operation} ${model.id}`, options, parent);
    this.#engine = span;
    const { traceId, spanId, traceFlags, traceState } = span.spanContext();
    return traceLines({ traceId, spanId, flags: traceFlags, state: traceState?.serialize() ?? '' });
  }

  engineEnded({ usage, error, kind }: Parameters<CallTrace['engineEnded']>[0]): void {
    const span = this.#engine;
    this.#engine = null;
    if (span === null) return;
    if (span.isRecording()) {
      span.setAttributes(usageOf(usage));
      if (kind === 'failed') fail(span, error?.code ?? 'upstream_error');
    }
    span.end();
  }

  ended(): void {
    // An attempt that was stopped from outside has no `engineEnded`.
    this.#engine?.end();
  }
}

/** Spans of a request: those at engines, and one for the client's side. */
class SpanTrace implements CallTrace {
  readonly traceId: string;
  readonly #server: Span;
  readonly #engine: EngineSpans;

  constructor(tracer: Tracer, server: Span, operation: string) {
    this.#server = server;
    this.#engine = new EngineSpans(tracer, server, operation);
    this.traceId = this.#engine.traceId;
  }

  toEngine(model: Model, replicaId: string): string {
    return this.#engine.toEngine(model, replicaId);
  }

  engineEnded(outcome: Parameters<CallTrace['engineEnded']>[0]): void {
    this.#engine.engineEnded(outcome);
  }

  part(): CallTrace {
    return this.#engine.part();
  }

  ended(summary: RequestSummary): void {
    this.#engine.ended();
    const span = this.#server;
    if (span.isRecording()) {
      span.setAttributes(attributesOf(summary));
      if (summary.code !== null) span.setAttribute('error.type', summary.code);
      // Errors of the client are not errors of the server's span.
      if (summary.status >= 500 || (summary.outcome === 'failed' && summary.status === 200)) {
        span.setStatus({ code: SpanStatusCode.ERROR });
      }
    }
    span.end();
  }
}

function fail(span: Span, errorType: string): void {
  span.setAttribute('error.type', errorType);
  span.setStatus({ code: SpanStatusCode.ERROR });
}

type TokenCounts = Pick<RequestSummary, 'inputTokens' | 'cachedTokens' | 'outputTokens'>;

function usageOf({ inputTokens, cachedTokens, outputTokens }: TokenCounts): Attributes {
  return {
    'gen_ai.usage.input_tokens': inputTokens,
    'gen_ai.usage.cache_read.input_tokens': cachedTokens,
    'gen_ai.usage.output_tokens': outputTokens,
  };
}

function attributesOf(summary: RequestSummary): Attributes {
  const { model, fallbackFor, keyId, organizationId, firstByteMs } = summary;
  return {
    ...usageOf(summary),
    'http.response.status_code': summary.status,
    'headgate.outcome': summary.outcome,
    'headgate.response_cache': summary.cache,
    'headgate.cold_start': summary.cold,
    'headgate.queued_ms': summary.queuedMs,
    ...(model !== null && { 'gen_ai.request.model': fallbackFor ?? model }),
    ...(model !== null && fallbackFor !== null && { 'gen_ai.response.model': model }),
    ...(keyId !== null && { 'headgate.key.id': keyId }),
    ...(organizationId !== null && { 'headgate.organization.id': organizationId }),
    ...(firstByteMs !== null && { 'headgate.first_byte_ms': firstByteMs }),
  };
}
