import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import {
  askEngine,
  type EngineAnswer,
  type EngineCounters,
  type NoAnswer,
  noAnswerText,
  readEngine,
} from '#core/fleet/serving/serving.ts';
import {
  type CheckedReplica,
  type Counted,
  countedIn,
  noteRequest,
  type ProbeRoute,
  usageBody,
} from './own-requests.ts';

/** Routes that generate text, with the id by which vLLM knows a request. */
const abortIds = {
  'chat/completions': (name: string) => `chatcmpl-${name}`,
  completions: (name: string) => `cmpl-${name}-0`,
} as const;
export type AbortRoute = keyof typeof abortIds;

export const canAbort = (route: ProbeRoute): route is AbortRoute => Object.hasOwn(abortIds, route);

/** More tokens than an engine makes before an abort reaches it. */
const tokensMax = 2048;
const abortTimeoutMs = 5000;
/** Tries until the answer ends: the engine may not know the id yet when the first one arrives. */
const triesMax = 12;
const repeatMs = 250;
/** Time for the counters to follow the answer. */
const settleMs = 3000;

/**
 * Aborts one request by its id, and compares the usage of its answer with the engine's counters. The replica must have
 * no other requests.
 * @returns null if they are equal, else the reason why aborts by id cannot be relied on, in a sentence
 */
export async function checkAbort(checked: CheckedReplica, route: AbortRoute): Promise<string | null> {
  const before = (await readEngine(checked.replica)).counters;
  if (before === null) return 'The engine has no counters of its tokens.';
  const { answer, counted, fault } = await abortOne(checked, route);
  if (fault !== null) return fault;
  if (typeof answer === 'string') return `A request that was aborted got no answer: ${noAnswerText[answer]}`;
  // A model without a chat template is right to reject a conversation.
  const isWithoutTemplate = answer.status === 400 && checked.definition.taskType === 'code';
  if (isWithoutTemplate && route !== 'completions') return checkAbort(checked, 'completions');
  if (answer.status !== 200) return `The request for the check of aborts got status ${answer.status}.`;
  if (!/"finish_reason"\s*:\s*"abort"/.test(answer.text)) return 'A request ran to its end although it was aborted.';
  return compareCounts(checked, before, counted);
}

interface Aborted {
  readonly answer: EngineAnswer | NoAnswer;
  readonly counted: Counted;
  /** Why the abort itself failed; null if the engine accepted it. */
  readonly fault: string | null;
}

/** Sends a request, and aborts it once its first token is here. */
async function abortOne(checked: CheckedReplica, route: AbortRoute): Promise<Aborted> {
  const { replica, timeoutMs, clock } = checked;
  const name = `headgate-canary-${randomBytes(8).toString('hex')}`;
  const startedMs = clock.now();
  const [over, givenUp] = [new AbortController(), new AbortController()];
  const aborting: Promise<string | null>[] = [];
  const abort = async (): Promise<string | null> => {
    const fault = await repeatAbort(checked, abortIds[route](name), over.signal);
    if (fault !== null) givenUp.abort();
    return fault;
  };
  const answer = await askEngine(replica, {
    method: 'POST',
    path: `/v1/${route}`,
    headers: { 'x-request-id': name },
    body: longBody(route, checked),
    timeoutMs,
    signal: givenUp.signal,
    onText: () => {
      if (aborting.length === 0) aborting.push(abort());
    },
  });
  over.abort();
  const [fault = null] = await Promise.all(aborting);
  const none = { promptTokens: 0, completionTokens: 0 };
  const seen = givenUp.signal.aborted ? { ...none, uncounted: true } : countedIn(answer, null);
  if (seen !== null) noteRequest(checked, { kind: 'canary', startedMs, counted: seen });
  return { answer, counted: seen ?? { ...none, uncounted: false }, fault };
}

function longBody(route: AbortRoute, { replica, definition }: CheckedReplica): Record<string, unknown> {
  return {
    ...usageBody(route),
    model: replica.upstreamModel ?? definition.id,
    max_tokens: Math.max(1, Math.min(tokensMax, Math.floor(definition.contextLength / 2))),
    ignore_eos: true,
    ...(!replica.forcedUsage && { stream_options: { include_usage: true } }),
  };
}

/** Repeats the abort until the answer has ended. @returns null, or why the engine does not accept aborts */
async function repeatAbort({ replica }: CheckedReplica, id: string, over: AbortSignal): Promise<string | null> {
  for (let tries = 0; tries < triesMax && !over.aborted; tries += 1) {
    const body = { request_ids: [id] };
    const asked = { method: 'POST', path: '/abort_requests', body, timeoutMs: abortTimeoutMs } as const;
    const answer = await askEngine(replica, asked);
    if (typeof answer === 'string') return `POST /abort_requests: ${noAnswerText[answer]}`;
    if (answer.status < 200 || answer.status > 299) return `POST /abort_requests returned status ${answer.status}.`;
    await sleep(repeatMs, undefined, { signal: over }).catch(() => undefined);
  }
  return over.aborted ? null : 'A request went on although it was aborted.';
}

async function compareCounts(checked: CheckedReplica, before: EngineCounters, usage: Counted): Promise<string | null> {
  const { replica, clock } = checked;
  if (usage.uncounted) return 'The answer of an aborted request has no usage.';
  const untilMs = clock.monotonicMs() + settleMs;
  for (;;) {
    const after = (await readEngine(replica)).counters;
    const prompt = (after?.promptTokens ?? NaN) - before.promptTokens;
    const output = (after?.generationTokens ?? NaN) - before.generationTokens;
    if (prompt === usage.promptTokens && output === usage.completionTokens) return null;
    if (clock.monotonicMs() > untilMs) {
      const shown = `${usage.promptTokens} and ${usage.completionTokens}`;
      return `The usage of an aborted request has ${shown} tokens of prompt and output, and the engine's counters ${prompt} and ${output}.`;
    }
    await sleep(repeatMs);
  }
}
