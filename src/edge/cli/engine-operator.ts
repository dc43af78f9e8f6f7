import { setTimeout as sleep } from 'node:timers/promises';
import {
  type Command,
  type CommandContext,
  confirm,
  exitCodes,
  jsonText,
  parseAnswer,
  textFlag,
  UsageError,
  yesOption,
} from '#edge/cli/shell/shell.ts';
import { commandText, type Engine, engine, enginePath, readyCount, remark } from './engine-answer.ts';

/** Orders to engines; each command waits for the result of its order. */

type Order = 'start' | 'stop' | 'restart' | 'reset';

/** `done` and `failed` end the wait; `on` means that the order is in progress. */
type Verdict = 'done' | 'failed' | 'on';

const timeoutSecondsDefault = 900;
const askEveryMs = 500;
/** Milliseconds between reports of values that change all the time, such as the progress of an image pull. */
const tellEveryMs = 5000;

export function operatorCommand(kind: Order, summary: string): Command {
  return {
    name: `engines ${kind}`,
    usage: `ID [--timeout SECONDS] [--no-wait]${kind === 'stop' ? ' [--yes]' : ''}`,
    summary,
    words: { min: 1, max: 1 },
    names: 'engines',
    options: {
      timeout: { type: 'string', about: `seconds to wait for the result; default: ${timeoutSecondsDefault}` },
      'no-wait': { type: 'boolean', about: 'send the request, without waiting for the result' },
      ...(kind === 'stop' && yesOption),
    },
    run: (context) => operate(context, kind),
  };
}

async function operate(context: CommandContext, kind: Order): Promise<number> {
  const { api, json, out, words, flags } = context;
  const timeoutMs = readTimeoutMs(context);
  const path = enginePath(words[0]);
  if (kind === 'stop') await confirmStop(context, await parseAnswer(engine, await api.call('GET', path)));
  const before =
    kind === 'restart' ? replicaIds(await parseAnswer(engine, await api.call('GET', path))) : new Set<string>();
  let answer = await api.call('POST', `${path}/${kind}`);
  let now = await parseAnswer(engine, answer);
  if (flags['no-wait'] === true) {
    out(json ? jsonText(answer) : `${now.id}: ${now.state}\n`);
    return exitCodes.ok;
  }
  const tell = createTeller(context);
  const judge = createJudge(kind, before);
  const endMs = performance.now() + timeoutMs;
  let verdict = judge(now);
  while (verdict === 'on' && performance.now() < endMs) {
    tell(now);
    await sleep(Math.min(askEveryMs, Math.max(0, endMs - performance.now())));
    answer = await api.call('GET', path);
    now = await parseAnswer(engine, answer);
    verdict = judge(now);
  }
  out(json ? jsonText(answer) : `${lastLine(now, verdict, timeoutMs)}\n`);
  return verdict === 'done' ? exitCodes.ok : exitCodes.failed;
}

/**
 * Asks before an engine with requests is stopped. An idle engine is stopped without a question: the next start brings
 * it back.
 */
async function confirmStop(context: CommandContext, { id, queue: { running, waiting } }: Engine): Promise<void> {
  if (running + waiting === 0) return;
  await confirm(context, {
    question: `Stop the engine ${id}?`,
    consequence: `${running} running and ${waiting} waiting requests end with an error.`,
    done: 'stopped',
  });
}

function readTimeoutMs(context: CommandContext): number {
  const text = textFlag(context, 'timeout') ?? String(timeoutSecondsDefault);
  if (!/^[1-9]\d{0,5}$/.test(text)) throw new UsageError('--timeout must be a number of seconds, 1 or more');
  return Number(text) * 1000;
}

const replicaIds = ({ replicas }: Engine): ReadonlySet<string> => new Set(replicas.map(({ id }) => id));

/** @param before ids of the replicas that a restart replaces */
function createJudge(kind: Order, before: ReadonlySet<string>): (now: Engine) => Verdict {
  let wasStarting = false;
  return (now) => {
    wasStarting ||= now.state === 'starting';
    switch (kind) {
      case 'stop':
        return judgeStop(now);
      case 'reset':
        if (now.driver === 'external') return judgeEnd(now, wasStarting, 'done');
        return hasFailed(now.state) || now.state === 'held' ? 'on' : 'done';
      case 'restart':
        // The old replicas still serve.
        if (now.rollout?.state === 'refused') return 'failed';
        return now.replicas.some(({ id, state }) => before.has(id) && state !== 'asleep')
          ? judgeEnd(now, wasStarting, 'on')
          : judgeEnd(now, wasStarting, 'done');
      default:
        return judgeEnd(now, wasStarting, 'done');
    }
  };
}

function judgeStop({ state, replicas, driver }: Engine): Verdict {
  if (state !== 'held') return 'on';
  return driver === 'external' || replicas.every((one) => one.state === 'asleep') ? 'done' : 'on';
}

/** True if starts failed. Gateways of older versions report `failed` for both states. */
const hasFailed = (state: string): boolean => state === 'failed' || state === 'retrying';

/** @param ready the verdict for an engine that is ready */
function judgeEnd({ state, driver, replicas }: Engine, wasStarting: boolean, ready: Verdict): Verdict {
  // An external engine is ready once it has answered a probe.
  const isKnown = driver !== 'external' || replicas.some(({ healthy }) => healthy === true);
  if (state === 'ready') return isKnown ? ready : 'on';
  if (hasFailed(state) || state === 'disabled') return 'failed';
  // Another command stopped the engine, or the engine has been idle for as long as its file allows.
  return wasStarting && ['held', 'off', 'stopped'].includes(state) ? 'failed' : 'on';
}

/** Creates a function that prints progress on standard error: standard output is for the result. */
function createTeller({ err, json }: CommandContext): (now: Engine) => void {
  let told = '';
  let kind = '';
  let atMs = -Infinity;
  return (now) => {
    const text = lineOf(now);
    // A change of only the percentage of a pull is not reported at once.
    const kindNow = text.replaceAll(/\d+/g, '');
    const isDue = kindNow !== kind || performance.now() - atMs >= tellEveryMs;
    if (json || text === told || !isDue) return;
    err(`${text}\n`);
    told = text;
    kind = kindNow;
    atMs = performance.now();
  };
}

function lineOf(now: Engine): string {
  const { id, state, replicas_max: most, replicas } = now;
  const parts = state === 'held' ? ['stopped by a command', ending(replicas.length)] : [state, going(now)];
  const count = state === 'ready' && most > 1 ? `, ${readyCount(now)} of up to ${most} replicas` : '';
  return `${id}: ${parts.filter((part) => part !== '').join(', ')}${count}`;
}

const ending = (count: number): string =>
  count === 0 ? '' : `${count} ${count === 1 ? 'replica is' : 'replicas are'} stopping, with the running requests`;

function going(now: Engine): string {
  if (now.state !== 'ready' || now.driver === 'external' || now.rollout?.state === 'refused') return remark(now);
  const others = now.replicas.filter(({ state }) => state !== 'ready' && state !== 'asleep');
  return others.map(({ state, progress }) => `a replica is ${state}${progress ? ` (${progress})` : ''}`).join(', ');
}

function lastLine(now: Engine, verdict: Verdict, timeoutMs: number): string {
  if (verdict === 'on') {
    const seconds = timeoutMs / 1000;
    return `${lineOf(now)}; timed out after ${seconds} seconds, see: ${commandText('show', now.id)}`;
  }
  if (now.state === 'held') return `${now.id}: held, ${remark(now)}`;
  // A retry is due, and the engine's output shows why the start failed.
  const isTried = hasFailed(now.state) && (now.last_failure?.retry_at ?? null) !== null;
  return isTried ? `${lineOf(now)}; its output: ${commandText('logs', now.id)}` : lineOf(now);
}
