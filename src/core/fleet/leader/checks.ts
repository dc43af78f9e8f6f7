import { z } from 'zod';
import type { Clock } from '#base/clock.ts';
import type { Canary, EngineDefinition, TaskType } from '#core/catalog/catalog.ts';
import { type FailureCause, failureCause, type Replica } from '#core/fleet/drivers/drivers.ts';
import type { EngineRequest, EngineRequestKind, EngineRequests } from '#core/fleet/runs/runs.ts';
import { askEngine, type EngineAnswer, type NoAnswer, noAnswerText, readEngine } from '#core/fleet/serving/serving.ts';

type Counted = Pick<EngineRequest, 'promptTokens' | 'completionTokens' | 'uncounted'>;

/** Matches usage objects. The last match applies: with continuous usage every frame of a stream has one. */
const usages = /"usage"\s*:\s*(\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\})/g;

/**
 * Returns the tokens that an engine counted for one of the gateway's own requests, by its answer, streamed or not.
 * @returns null if the engine counted nothing: it was unreachable or rejected the request
 */
function countedIn(answer: EngineAnswer | NoAnswer, body: unknown): Counted | null {
  if (answer === 'refused' || (typeof answer !== 'string' && answer.status >= 400 && answer.status < 500)) return null;
  const unknown = { promptTokens: 0, completionTokens: 0, uncounted: true };
  if (typeof answer === 'string') return unknown;
  const last = [...answer.text.matchAll(usages)].at(-1)?.[1];
  if (last === undefined) return unknown;
  try {
    const usage = JSON.parse(last) as Record<string, unknown>;
    // `input_tokens` is the field name of /v1/responses and /v1/messages.
    const promptTokens =
      countOf(usage['prompt_tokens']) || countOf(usage['input_tokens']) || countOf(usage['total_tokens']);
    // An engine counts the prompt for each of its choices.
    return {
      promptTokens: promptTokens * choicesOf(body),
      completionTokens: countOf(usage['completion_tokens']) || countOf(usage['output_tokens']),
      uncounted: answer.status !== 200,
    };
  } catch {
    return unknown;
  }
}

function countOf(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}

function choicesOf(body: unknown): number {
  const n: unknown = typeof body === 'object' && body !== null && 'n' in body ? body.n : 1;
  return typeof n === 'number' && Number.isInteger(n) && n > 1 ? n : 1;
}

/**
 * Checks a replica before users' requests reach it. These requests are not billed and appear in nobody's usage: they
 * bypass the gateway's request path. They are noted, so that the engine's own counters can be explained.
 */

export interface CheckedReplica {
  readonly replica: Replica;
  readonly definition: EngineDefinition;
  /** Limit for each request. */
  readonly timeoutMs: number;
  readonly engineRequests: EngineRequests | null;
  readonly clock: Clock;
}

/** Runs the usage check, the check of adapters, then the canaries. @returns null if all passed */
export async function checkReplica(checked: CheckedReplica): Promise<FailureCause | null> {
  const { replica, definition } = checked;
  const probe = replica.kind === 'vllm' ? await probeUsage(checked) : null;
  return probe ?? (await findAdapters(checked)) ?? (await replayCanaries(checked, canariesOf(definition)));
}

/** Checks that the engine lists all adapters. Otherwise every request for a missing adapter would get "not found". */
async function findAdapters({ replica, definition, timeoutMs }: CheckedReplica): Promise<FailureCause | null> {
  if (definition.lora.length === 0) return null;
  const answer = await askEngine(replica, { method: 'GET', path: '/v1/models', timeoutMs });
  if (typeof answer === 'string') return failureCause('probe_failed', noAnswerText[answer]);
  const served = servedIds(answer);
  const missing = definition.lora.find(({ id }) => !served.has(id));
  if (missing === undefined) return null;
  return failureCause('adapter_missing', `The engine's GET /v1/models does not list the adapter ${missing.id}.`);
}

const modelList = z.object({ data: z.array(z.object({ id: z.string() })) });

function servedIds({ status, text }: EngineAnswer): ReadonlySet<string> {
  if (status !== 200) return new Set();
  try {
    return new Set(modelList.safeParse(JSON.parse(text)).data?.data.map(({ id }) => id));
  } catch {
    return new Set();
  }
}

/** Checks a replica after its wake-up with one prompt. */
export function checkAwake(checked: CheckedReplica): Promise<FailureCause | null> {
  const [canary] = [...canariesOf(checked.definition), ...builtIn(checked.definition.taskType)];
  return replayCanaries(checked, canary === undefined ? [] : [canary]);
}

/**
 * Asks a silent replica for one token. A replica that answers anything but an error of its own works, and so does one
 * whose metrics show progress while the request waits behind others.
 */
export async function checkProgress(checked: CheckedReplica): Promise<FailureCause | null> {
  const { replica, definition, timeoutMs } = checked;
  // A coder may lack the chat template that a conversation needs.
  const route = definition.taskType === 'code' ? 'completions' : routes[definition.taskType];
  const before = await readEngine(replica);
  const answer = await send(checked, 'canary', route, usageBody(route));
  if (typeof answer !== 'string' && answer.status < 500) return null;
  const after = await readEngine(replica);
  if (after.progress === null || after.progress !== before.progress) return null;
  const found = typeof answer === 'string' ? answer : `The canary returned status ${answer.status}.`;
  return failureCause('wedged', `${found} It made no progress within ${timeoutMs / 1000} s.`);
}

const hello = [{ role: 'user', content: 'Hi' }];

type ProbeRoute = 'chat/completions' | 'completions' | 'embeddings' | 'rerank';

const routes: Record<TaskType, ProbeRoute> = {
  chat: 'chat/completions',
  vision: 'chat/completions',
  code: 'chat/completions',
  completion: 'completions',
  embedding: 'embeddings',
  rerank: 'rerank',
};

/**
 * Sends one tiny request and requires a token count in its answer. Bills use the engine's own count, so an engine that
 * does not count gets no users' requests. If forced usage is expected, the request does not ask for usage.
 */
async function probeUsage(checked: CheckedReplica): Promise<FailureCause | null> {
  const { replica, definition } = checked;
  const route = routes[definition.taskType];
  const streams = route === 'chat/completions' || route === 'completions';
  const asksUsage = streams && !replica.forcedUsage ? { stream_options: { include_usage: true } } : {};
  const answer = await send(checked, 'probe', route, { ...usageBody(route), ...asksUsage });
  if (typeof answer === 'string') return failureCause('probe_failed', answer);
  // A model without a chat template is right to reject a conversation.
  if (answer.status === 400 && definition.taskType === 'code') {
    const completion = { ...usageBody('completions'), ...asksUsage };
    return judgeUsage(await send(checked, 'probe', 'completions', completion), true);
  }
  return judgeUsage(answer, streams);
}

function usageBody(route: ProbeRoute): Record<string, unknown> {
  switch (route) {
    case 'chat/completions':
      return { messages: hello, max_tokens: 1, stream: true };
    case 'completions':
      return { prompt: 'Hi', max_tokens: 1, stream: true };
    case 'embeddings':
      return { input: 'Hi' };
    case 'rerank':
      return { query: 'Hi', documents: ['Hello'] };
  }
}

function judgeUsage(answer: EngineAnswer | string, streams: boolean): FailureCause | null {
  const bad = (words: string): FailureCause => failureCause('probe_failed', words);
  if (typeof answer === 'string') return bad(answer);
  if (answer.status !== 200) return bad(`The usage check returned status ${answer.status}.`);
  if (streams && !/^data: \[DONE\]\s*$/m.test(answer.text))
    return bad('The stream of the usage check ended incorrectly.');
  return /"usage"\s*:\s*\{/.test(answer.text) ? null : bad('The response to the usage check has no usage.');
}

function canariesOf(definition: EngineDefinition): readonly Canary[] {
  const { driver, taskType } = definition;
  if (driver.type !== 'docker' && driver.type !== 'swarm') return [];
  return [...builtIn(taskType), ...driver.canaries];
}

/** Returns the built-in canaries. Answers of a few tokens also exercise chat templates and parsers. */
function builtIn(taskType: TaskType): readonly Canary[] {
  const route = routes[taskType];
  const few = { max_tokens: 8, temperature: 0 };
  if (route === 'chat/completions') return [{ route, body: { messages: hello, ...few }, contains: null }];
  if (route === 'completions') return [{ route, body: { prompt: 'Hi', ...few }, contains: null }];
  if (route === 'embeddings') return [{ route, body: { input: ['Hi', 'Hello'] }, contains: null }];
  return [];
}

async function replayCanaries(checked: CheckedReplica, canaries: readonly Canary[]): Promise<FailureCause | null> {
  for (const [index, canary] of canaries.entries()) {
    const failure = await replay(checked, canary);
    if (failure !== null) return failureCause('canary_failed', `Canary ${index + 1} of ${canaries.length}: ${failure}`);
  }
  return null;
}

async function replay(checked: CheckedReplica, { route, body, contains }: Canary): Promise<string | null> {
  const answer = await send(checked, 'canary', route, body);
  if (typeof answer === 'string') return answer;
  const isWithoutTemplate = answer.status === 400 && checked.definition.taskType === 'code' && contains === null;
  if (isWithoutTemplate) return null;
  if (answer.status !== 200) return `it returned status ${answer.status}.`;
  if (!isWellFormed(route, answer.text)) return 'the response is not well-formed.';
  return contains === null || answer.text.includes(JSON.stringify(contains).slice(1, -1))
    ? null
    : 'the response does not contain the expected text.';
}

const choices = /"choices"\s*:\s*\[\s*\{/;
const wellFormed: Readonly<Record<Canary['route'], RegExp>> = {
  'chat/completions': choices,
  completions: choices,
  responses: /"output"\s*:\s*\[\s*\{/,
  messages: /"content"\s*:\s*\[\s*\{/,
  embeddings: /"embedding"\s*:/,
  rerank: /"results"\s*:\s*\[\s*\{/,
  score: /"score"\s*:/,
};

/** True if the answer, streamed or not, has no error and contains the field that its route requires. */
function isWellFormed(route: Canary['route'], text: string): boolean {
  if (/"error"\s*:\s*\{/.test(text)) return false;
  return wellFormed[route].test(text);
}

/** @returns the answer, or a message that says why there is none */
async function send(
  checked: CheckedReplica,
  kind: EngineRequestKind,
  route: Canary['route'],
  body: unknown,
): Promise<EngineAnswer | string> {
  const { replica, definition, timeoutMs } = checked;
  const model = replica.upstreamModel ?? definition.id;
  const named = { model, ...(typeof body === 'object' ? body : {}) };
  const startedMs = checked.clock.now();
  const answer = await askEngine(replica, { method: 'POST', path: `/v1/${route}`, body: named, timeoutMs });
  const about = { kind, model: definition.id, replicaId: replica.id, startedMs };
  const counted = countedIn(answer, body);
  if (counted !== null) checked.engineRequests?.note({ ...about, ...counted, uncountedMax: null });
  return typeof answer === 'string' ? noAnswerText[answer] : answer;
}
