import { AppError } from '#base/errors.ts';
import type { AnswerHeaders, Aborter, EngineCall, EngineClient, EngineFault } from '#core/proxy/proxy.ts';
import type { Replica } from '#core/fleet/fleet.ts';
import { meterJson, noUsage, type Outcome, type StreamMeter, type Usage, type UsageSource } from '#core/metering/metering.ts';
import { doneFrame, type Answer } from './answer.ts';
import { engineError } from './engine-error.ts';
import type { InferenceEndpoint } from './fields.ts';
import type { StreamHold } from './hold.ts';

/** How one request's work at the engine ended, and what is still to be sent once that is in the books. */
export interface Ending {
  readonly outcome: Outcome;
  /** What went wrong or who ended it; null when the answer is complete or nobody is left to tell. */
  readonly error: AppError | null;
  /** The last frames of a stream, or the whole JSON answer, as latin1. */
  readonly last: string;
  readonly usage: Usage;
  readonly usageSource: UsageSource;
  /** Nothing of an answer has come, so another replica may be asked. */
  readonly retry: boolean;
  /** The replica could not be reached. */
  readonly unreachable: boolean;
}

/** Why a request ends before its answer does. */
export interface Stop {
  readonly outcome: 'aborted' | 'ended';
  readonly error: AppError | null;
}

export const clientLeft: Stop = { outcome: 'aborted', error: null };

export interface ExchangeParts {
  readonly client: EngineClient;
  readonly aborter: Aborter;
}

export interface ExchangeJob {
  readonly requestId: string;
  readonly endpoint: InferenceEndpoint;
  readonly prompts: number;
  readonly replica: Replica;
  readonly body: string;
  readonly headerLines: string;
  readonly answer: Answer;
  /** Null for a JSON answer. */
  readonly meter: StreamMeter | null;
  readonly hold: StreamHold | null;
  readonly costText: ((usage: Usage) => string) | null;
  /** The catalog id where the engine calls the model otherwise. */
  readonly rename: string | null;
  /** Called when the first byte of an answer's body is here. */
  readonly onFirstByte: () => void;
}

export interface Exchange {
  readonly ending: Promise<Ending>;
  /** Ends the engine's request by its id and bills what it counted; the first call counts. */
  stop(stop: Stop): void;
  /** The client left: that is an abort, unless it has all it waited for. */
  clientGone(): void;
}

/** How long an engine may take to end a request that it was asked to end; then its connection is closed. */
const abortWaitMs = 900;
const abortRepeatMs = 150;
const errorBodyBytesMax = 1_048_576;
const jsonBodyBytesMax = 268_435_456;
/** A client that takes nothing for this long has left without saying so. */
const slowReaderMs = 120_000;

/** The ids by which vLLM knows a request that came with our X-Request-Id; embeddings have none worth ending. */
function engineRequestIds(job: ExchangeJob): string[] {
  if (job.endpoint === '/v1/chat/completions') return [`chatcmpl-${job.requestId}`];
  if (job.endpoint === '/v1/embeddings') return [];
  return Array.from({ length: job.prompts }, (_, index) => `cmpl-${job.requestId}-${index}`);
}

const upstreamFailed = (status = 502): AppError => new AppError('upstream_error', { status });

function faultError(fault: EngineFault): AppError {
  return upstreamFailed(fault.kind === 'first_byte_timeout' || fault.kind === 'idle_timeout' ? 504 : 502);
}

/** Sends a request to a replica and its answer to the client, counting on the way. */
export function startExchange(parts: ExchangeParts, job: ExchangeJob): Exchange {
  const { meter, answer } = job;
  let conclude: (ending: Ending) => void = () => undefined;
  const ending = new Promise<Ending>((resolve) => {
    conclude = resolve;
  });
  let concluded = false;
  let stopped: Stop | null = null;
  let status = 0;
  let retryAfter: string | undefined;
  let collected = '';
  let firstByteSeen = false;
  let slowReader: NodeJS.Timeout | null = null;

  function finish(result: Partial<Ending> & Pick<Ending, 'outcome' | 'error'>): void {
    if (concluded) return;
    concluded = true;
    if (slowReader !== null) clearTimeout(slowReader);
    const counted = meter === null ? { usage: noUsage, source: 'none' as const } : meter.usage();
    conclude({ last: '', usage: counted.usage, usageSource: counted.source, retry: false, unreachable: false, ...result });
  }

  function fail(error: AppError, more: Partial<Ending> = {}): void {
    if (stopped !== null) finish({ outcome: stopped.outcome, error: stopped.error, ...more, retry: false });
    else finish({ outcome: 'failed', error, ...more, retry: more.retry === true && !answer.frameSent });
  }

  function streamData(text: string, stream: StreamMeter): void {
    const out = stream.feed(text);
    if (stopped === null && out !== '' && !answer.frames(out)) waitForReader();
    if (stream.failure !== null) {
      call.destroy();
      fail(upstreamFailed(), { retry: stream.failure === 'error_frame' });
    } else if (stream.done) {
      if (stopped === null) finish({ outcome: 'completed', error: null, last: doneFrame });
      else finish({ outcome: stopped.outcome, error: stopped.error });
    } else if (stopped === null && job.hold !== null && !stream.finished) {
      if (!job.hold.covers(stream.inputTokens, stream.outputTokens)) stop(outOfFunds());
    }
  }

  function waitForReader(): void {
    call.pause();
    slowReader ??= setTimeout(() => stop(clientLeft), slowReaderMs);
  }

  answer.onDrain(() => {
    if (slowReader !== null) clearTimeout(slowReader);
    slowReader = null;
    if (!concluded) call.resume();
  });

  function jsonEnd(): void {
    const metered = meterJson(collected, { costText: job.costText, rename: job.rename });
    if (!metered.ok) return fail(upstreamFailed());
    const usage = metered.usage ?? noUsage;
    const usageSource = metered.usage === null ? 'none' : 'engine';
    if (stopped !== null) return finish({ outcome: stopped.outcome, error: stopped.error, usage, usageSource });
    if (metered.aborted) return fail(upstreamFailed(), { usage, usageSource });
    finish({ outcome: 'completed', error: null, last: metered.text, usage, usageSource });
  }

  function bodyEnd(): void {
    if (status !== 200) {
      const verdict = engineError(status, collected, retryAfter);
      return fail(verdict.error, { retry: verdict.retry });
    }
    if (meter !== null) return fail(upstreamFailed());
    jsonEnd();
  }

  function head(answerStatus: number, headers: AnswerHeaders): void {
    status = answerStatus;
    retryAfter = headers.get('retry-after');
    if (status !== 200) return;
    const isStream = headers.get('content-type')?.startsWith('text/event-stream') ?? false;
    if (isStream !== (meter !== null)) {
      call.destroy();
      fail(upstreamFailed());
    }
  }

  function data(text: string): void {
    if (!firstByteSeen) {
      firstByteSeen = true;
      job.onFirstByte();
    }
    if (status === 200 && meter !== null) return streamData(text, meter);
    collected += text;
    if (collected.length > (status === 200 ? jsonBodyBytesMax : errorBodyBytesMax)) {
      call.destroy();
      fail(upstreamFailed());
    }
  }

  const call: EngineCall = parts.client.call(
    job.replica.endpoint,
    { method: 'POST', path: job.endpoint, headerLines: job.headerLines, body: job.body },
    {
      onHead: head,
      onData: (text) => {
        if (!concluded) data(text);
      },
      onEnd: () => {
        if (!concluded) bodyEnd();
      },
      onFault: (fault) => {
        const timedOut = fault.kind === 'first_byte_timeout';
        fail(faultError(fault), { retry: !fault.bodySeen && !timedOut, unreachable: fault.kind === 'refused' });
      },
    },
  );

  function stop(reason: Stop): void {
    if (concluded || stopped !== null) return;
    stopped = reason;
    meter?.expectAbort();
    call.resume();
    void endAtEngine();
  }

  /** The engine may not know the id yet when the first try arrives, hence the repeats. */
  async function endAtEngine(): Promise<void> {
    const { endpoint, headerLines } = job.replica;
    const ids = engineRequestIds(job);
    for (let waitedMs = 0; waitedMs < abortWaitMs && !concluded; waitedMs += abortRepeatMs) {
      const outcome = await Promise.race([parts.aborter.abort(endpoint, headerLines, ids), wait(abortWaitMs)]);
      if (outcome !== 'sent') break;
      await Promise.race([ending, wait(abortRepeatMs)]);
    }
    closeAtOnce();
  }

  function closeAtOnce(): void {
    if (concluded) return;
    call.destroy();
    finish({ outcome: stopped?.outcome ?? 'aborted', error: stopped?.error ?? null });
  }

  function clientGone(): void {
    if (meter?.finished !== true || stopped !== null) return stop(clientLeft);
    // It has every choice's end and left: the answer is complete, only the final count is still on its way.
    call.resume();
    void wait(abortWaitMs).then(() => {
      if (concluded) return;
      call.destroy();
      finish({ outcome: 'completed', error: null });
    });
  }

  return { ending, stop, clientGone };
}

function wait(ms: number): Promise<'late'> {
  return new Promise((resolve) => {
    setTimeout(() => resolve('late'), ms).unref();
  });
}

function outOfFunds(): Stop {
  const message = 'The balance is used up; the answer ends here.';
  return { outcome: 'ended', error: new AppError('insufficient_funds', { message }) };
}
