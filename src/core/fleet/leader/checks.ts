import { z } from 'zod';
import { type Canary, type EngineDefinition, isTriedVllm, type TaskType } from '#core/catalog/catalog.ts';
import { type FailureCause, failureCause } from '#core/fleet/drivers/drivers.ts';
import { askEngine, type EngineAnswer, identifyEngine, noAnswerText, readEngine } from '#core/fleet/serving/serving.ts';
import { canAbort, checkAbort } from './abort-check.ts';
import { type CheckedReplica, hello, type ProbeRoute, send, usageBody } from './own-requests.ts';

/**
 * Checks a replica before users' requests reach it. These requests are not billed and appear in nobody's usage: they
 * bypass the gateway's request path. They are noted, so that the engine's own counters can be explained.
 */

export interface CheckResult {
  /** Null if all checks passed. */
  readonly cause: FailureCause | null;
  /** Why aborts by id cannot be relied on, although the replica serves; null if there is no such reason. */
  readonly abortFault: string | null;
}

/**
 * Runs the usage check, the check of adapters, the canaries, and for versions of vLLM that were not tried one abort by
 * id.
 */
export async function checkReplica(checked: CheckedReplica): Promise<CheckResult> {
  const { replica, definition } = checked;
  const probe = replica.kind === 'vllm' ? await probeUsage(checked) : null;
  const cause = probe ?? (await findAdapters(checked)) ?? (await replayCanaries(checked, canariesOf(definition)));
  return { cause, abortFault: cause === null && replica.kind === 'vllm' ? await findAbortFault(checked) : null };
}

async function findAbortFault(checked: CheckedReplica): Promise<string | null> {
  const route = routes[checked.definition.taskType];
  if (!canAbort(route)) return null;
  const version = (await identifyEngine(checked.replica))?.version ?? null;
  return version !== null && isTriedVllm(version) ? null : checkAbort(checked, route);
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
