import { AppError } from '#base/errors.ts';
import type { Grant } from '#core/admission/admission.ts';
import type { Model } from '#core/catalog/catalog.ts';
import { noUsage, type Usage } from '#core/metering/metering.ts';
import {
  answerBytesMax,
  failedBy,
  joinAnswers,
  type Outcome,
  outcomeOf,
  type Stop,
  StopControl,
  stoppedBy,
  thrownBy,
  toInferenceError,
} from '#edge/inference/answer/answer.ts';
import {
  type Call,
  type CallPart,
  type CallTimings,
  type InferenceRequest,
  timingsFrom,
} from '#edge/inference/call/call.ts';
import type { InputPart, SplitInput } from '#edge/inference/request/request.ts';
import { PartAnswer, type WholeBytes } from './part-answer.ts';
import { PartsMemoryBudget } from './parts-memory-budget.ts';
import type { PathParts } from './path-parts.ts';
import { relay, renameOf } from './relay.ts';
import { routePart } from './route.ts';
import { noteCutOff } from './unbilled.ts';

/** While one part is computed, the next one is tokenized and the previous answer is written. */
const partsPerReplica = 2;
/** Most parts of one request at engines at once, however many replicas there are. */
const partsAtOnceMax = 16;

/**
 * Sends a request with many texts in parts, in parallel to the replicas of its model, each as `relay` sends a whole
 * request. Joins the answers. The first part that fails ends the others.
 */
export function relayParts(parts: PathParts, call: Call, request: InferenceRequest, grant: Grant): Promise<Outcome> {
  const { split } = request.fields;
  if (split === null) throw new Error('a request that is not split has no parts');
  call.stop.throwIfStopped();
  return new PartsRelay(parts, { call, request, grant, split }).run();
}

interface Job {
  readonly call: Call;
  readonly request: InferenceRequest;
  readonly grant: Grant;
  readonly split: SplitInput;
}

interface SentAs {
  readonly whole: WholeBytes;
  readonly isFirst: boolean;
}

/** A part that was sent. */
class SentPart implements CallPart {
  readonly input: InputPart;
  /** Null while the part runs. */
  outcome: Outcome | null = null;
  /** Answer to the last try; null before the first. */
  answer: PartAnswer | null = null;
  readonly call: Call;
  readonly #whole: WholeBytes;

  /** The first part uses the lease that its request waited for, and the request's own id at the engine. */
  constructor(input: InputPart, { call }: Job, { whole, isFirst }: SentAs) {
    this.input = input;
    this.#whole = whole;
    this.call = {
      ...call,
      requestId: isFirst ? call.requestId : `${call.requestId}-${input.first}`,
      trace: call.trace.part(),
      stop: new StopControl(),
      held: { ...call.held, lease: isFirst ? call.held.lease : null, flexLease: null, leave: null },
      timings: timingsFrom(call.timings.startedMs),
      part: this,
    };
  }

  collect(): PartAnswer {
    const { answers } = this.call.endpoint;
    // Bytes of a failed try are not kept.
    this.#whole.bytes -= this.answer?.ownBytes ?? 0;
    this.answer = new PartAnswer({ part: this.input, whole: this.#whole, answers });
    return this.answer;
  }

  get isAnswered(): boolean {
    return this.outcome?.kind === 'completed';
  }

  /** True if an engine reported its count, even if the count came too late. */
  get isCounted(): boolean {
    return this.outcome?.usageSource === 'engine';
  }

  /** True if an engine had the part, and had to end it before it reported its count. */
  get isCutOff(): boolean {
    return !this.isCounted && !this.isAnswered && this.call.stop.reason !== null && this.call.timings.engineMs !== null;
  }
}

class PartsRelay {
  readonly #parts: PathParts;
  readonly #job: Job;
  readonly #whole: WholeBytes = { bytes: 0 };
  readonly #memory: PartsMemoryBudget;
  readonly #sinceMs: number;
  /** Parts in the order in which they were sent. */
  readonly #sent: SentPart[] = [];
  /** Inputs in the order in which they are sent. */
  readonly #order: readonly InputPart[];
  /** Number of parts at the beginning that go one after the other: see `decisiveParts`. */
  readonly #decisiveCount: number;
  #running = 0;
  /** Reason to end before all parts are answered. */
  #ended: Outcome | null = null;
  #conclude: (outcome: Outcome) => void = () => undefined;

  constructor(parts: PathParts, job: Job) {
    this.#job = job;
    const decisive = decisiveParts(job.split, job.request.model);
    this.#decisiveCount = decisive.length;
    this.#order = [...new Set([...decisive, ...job.split.parts])];
    this.#memory = new PartsMemoryBudget(parts.answerMemory, this.#whole, () => this.#sendMore());
    this.#parts = { ...parts, answerMemory: this.#memory };
    this.#sinceMs = parts.clock.monotonicMs();
    // One hold on memory counts the bytes of all parts.
    job.call.held.body ??= parts.shares.hold(job.request.caller.key.id);
  }

  run(): Promise<Outcome> {
    return new Promise((resolve) => {
      this.#conclude = resolve;
      this.#job.call.stop.listen((reason) => {
        this.#end(stoppedBy(reason), reason);
        this.#goOn();
      });
      this.#sendMore();
    });
  }

  #sendMore(): void {
    while (this.#ended === null && this.#running < this.#atOnce() && !this.#memory.waits) {
      const input = this.#order[this.#sent.length];
      if (input === undefined) return;
      const part = new SentPart(input, this.#job, { whole: this.#whole, isFirst: this.#sent.length === 0 });
      this.#sent.push(part);
      this.#running += 1;
      this.#send(part)
        .then((outcome) => this.#over(part, outcome))
        .catch((error: unknown) => this.#broke(toInferenceError(error)));
    }
  }

  #broke(error: AppError): void {
    this.#end(failedBy(error), { kind: 'ended', error });
    this.#conclude(failedBy(error));
  }

  /**
   * Returns how many parts may run at once. A request of the tier `flex` waited for one place at the engine, and takes
   * no other.
   */
  #atOnce(): number {
    const { model, fields } = this.#job.request;
    const isTelling =
      this.#sent.slice(0, this.#decisiveCount).filter(({ isAnswered }) => isAnswered).length < this.#decisiveCount;
    if (fields.serviceTier === 'flex' || isTelling) return 1;
    return Math.min(partsAtOnceMax, partsPerReplica * Math.max(1, this.#parts.routing.replicas(model)));
  }

  async #send({ call }: SentPart): Promise<Outcome> {
    const { request, grant } = this.#job;
    try {
      if (call.held.lease === null) await routePart(this.#parts, call, request);
      return await relay(this.#parts, call, request, grant);
    } catch (error) {
      return thrownBy(call.stop, error);
    } finally {
      call.held.lease?.release();
    }
  }

  #over(part: SentPart, outcome: Outcome): void {
    this.#running -= 1;
    part.outcome = outcome;
    const error = this.#errorAfter(outcome);
    if (error !== null) this.#end(failedBy(error), { kind: 'ended', error });
    this.#goOn();
  }

  /** Returns the error that ends the whole request after this outcome of a part; null to continue. */
  #errorAfter({ kind, error }: Outcome): AppError | null {
    const { key } = this.#job.split;
    if (kind !== 'completed') return this.#whole.bytes > answerBytesMax ? tooLarge(key) : error;
    const bytes = this.#foreseenBytes();
    if (bytes > answerBytesMax) return tooLarge(key);
    this.#memory.expect(bytes);
    return null;
  }

  /** Estimates the bytes of the whole answer. All vectors have one length, so the first part already shows it. */
  #foreseenBytes(): number {
    const answered = this.#sent.filter(({ isAnswered }) => isAnswered);
    const bytes = sum(answered, ({ answer }) => answer?.ownBytes ?? 0);
    const texts = sum(answered, ({ input }) => input.count);
    return Math.ceil((bytes / texts) * sum(this.#job.split.parts, ({ count }) => count));
  }

  #end(outcome: Outcome, reason: Stop): void {
    if (this.#ended !== null) return;
    this.#ended = outcome;
    for (const { call, outcome: own } of this.#sent) if (own === null) call.stop.stop(reason);
  }

  #goOn(): void {
    this.#sendMore();
    const isAll = this.#sent.length === this.#job.split.parts.length;
    if (this.#running === 0 && (isAll || this.#ended !== null)) this.#finish();
  }

  #finish(): void {
    const { call } = this.#job;
    call.stop.listen(null);
    this.#noteTimings(call.timings);
    call.held.lease = this.#sent[0]?.call.held.lease ?? null;
    const outcome = this.#ended === null ? this.#join() : this.#breakOff(this.#ended);
    call.held.answerPlace = this.#memory.place;
    if (outcome.kind === 'completed') this.#memory.place?.collected();
    else this.#memory.place?.end();
    this.#conclude(outcome);
  }

  #join(): Outcome {
    const { call, request } = this.#job;
    const inPlace = this.#sent.toSorted((a, b) => a.input.first - b.input.first);
    const answered = inPlace.map(({ outcome, answer }) => ({
      last: outcome?.last ?? '',
      around: answer?.around ?? '',
    }));
    const joined = joinAnswers(answered, call.endpoint.answers, { rename: renameOf(request) });
    if (!joined.ok) return this.#breakOff(failedBy(new AppError('upstream_error', { reason: 'engine_answer' })));
    const { write } = joined;
    const answer = { last: write(null), writeBill: write };
    return outcomeOf({ kind: 'completed', error: null, ...answer, ...this.#sumOf(this.#sent) });
  }

  /** Sums the usage of parts. The sum is only as certain as its least certain part. */
  #sumOf(parts: readonly SentPart[]): Pick<Outcome, 'usage' | 'usageSource' | 'countFault'> {
    const outcomes = parts.flatMap(({ outcome }) => outcome ?? []);
    const usage = outcomes.map((one) => one.usage).reduce(plusUsage, noUsage);
    const countFault = outcomes.find((one) => one.countFault !== null)?.countFault ?? null;
    if (outcomes.some(({ usageSource }) => usageSource === 'counted'))
      return { usage, usageSource: 'counted', countFault };
    return { usage, usageSource: parts.every(({ isCounted }) => isCounted) ? 'engine' : 'last_seen', countFault };
  }

  /** Adds the engines' counts to the outcome, however the request ended: `billOf` decides who pays for them. */
  #breakOff(ended: Outcome): Outcome {
    const counted = this.#sent.filter(({ isCounted, isAnswered }) => isCounted || isAnswered);
    const cutOff = this.#sent.filter(({ isCutOff }) => isCutOff);
    // The record of a request whose client left shows by itself that counts may be missing.
    if (ended.kind !== 'aborted') for (const { call } of cutOff) noteCutOff(this.#parts, call, this.#job.request);
    if (counted.length === 0) return ended;
    const sum = this.#sumOf(counted);
    const isUnsure = cutOff.length > 0 && sum.usageSource === 'engine';
    return { ...ended, ...sum, usageSource: isUnsure ? 'last_seen' : sum.usageSource };
  }

  /** Adds up the parts' timings. Parts wait in parallel, so the longest wait counts. */
  #noteTimings(timings: CallTimings): void {
    const all = this.#sent.map(({ call }) => call.timings);
    const waitedMs = Math.max(0, ...all.map(({ queuedMs }) => queuedMs));
    timings.queuedMs += waitedMs;
    timings.coldMs += Math.max(0, ...all.map(({ coldMs }) => coldMs));
    timings.retries += sum(all, ({ retries }) => retries);
    const firstBytesMs = all.flatMap(({ firstByteMs }) => firstByteMs ?? []);
    if (firstBytesMs.length > 0) timings.firstByteMs = Math.min(...firstBytesMs);
    const tookMs = this.#parts.clock.monotonicMs() - this.#sinceMs;
    if (all.some(({ engineMs }) => engineMs !== null)) timings.engineMs = Math.max(0, tookMs - waitedMs);
  }
}

/**
 * Returns the parts that an engine may reject; if it accepts them, it accepts all others. They are the part with the
 * largest token id, and the part with the longest text, if that may exceed the context. Each is sent by itself, before
 * the rest of the request is computed.
 */
function decisiveParts({ parts, largestId }: SplitInput, { contextLength }: Model): readonly InputPart[] {
  const longest = parts.reduce((most, part) => (part.longest > most.longest ? part : most));
  const decisive = longest.longest > contextLength ? [longest] : [];
  return [...new Set(largestId === null ? decisive : [largestId, ...decisive])];
}

function tooLarge(key: string): AppError {
  const shorter = 'Send fewer inputs at once, use "encoding_format": "base64", or request fewer "dimensions"';
  const message = `The response would have more than ${answerBytesMax} bytes. ${shorter}.`;
  return new AppError('invalid_value', { message, param: key });
}

function sum<Item>(items: readonly Item[], read: (item: Item) => number): number {
  return items.reduce((total, item) => total + read(item), 0);
}

function plusUsage(a: Usage, b: Usage): Usage {
  return {
    inputTokens: a.inputTokens + b.inputTokens,
    cachedTokens: a.cachedTokens + b.cachedTokens,
    cacheWriteTokens: a.cacheWriteTokens + b.cacheWriteTokens,
    outputTokens: a.outputTokens + b.outputTokens,
    reasoningTokens: a.reasoningTokens + b.reasoningTokens,
  };
}
