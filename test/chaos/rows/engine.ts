import { callApi, type InferenceKey } from '../parts/api.ts';
import { type Ask, askOnce, type Seen } from '../parts/client.ts';
import { engineRecords } from '#test/programs/gateway-process.ts';
import type { UsageRow } from '../parts/books.ts';
import type { Scene } from '../parts/scene.ts';
import { sleep, within } from '../parts/wait.ts';
import type { Row, Stage } from '../row.ts';
import { askFor, conclude, namesOf, refused, warm } from './steps.ts';

/** An engine that dies, hangs, resets or sends garbage; before the first byte, at the first token, midway, at the end. */

const tokens = 12;
const silenceSeconds = 2;
const env = {
  HEADGATE_UPSTREAM_FIRST_BYTE_SECONDS: String(silenceSeconds),
  HEADGATE_UPSTREAM_IDLE_SECONDS: String(silenceSeconds),
};

const points = {
  'before the first byte': 0,
  'at the first token': 1,
  midway: tokens / 2,
  'at the end': tokens,
} as const;

type Knobs = Ask['standin'];

/** Settings of the stand-in, by how it fails and after how many tokens. */
const faults: Readonly<Record<string, (after: number) => Knobs>> = {
  hung: (after) => (after === 0 ? { hang: 'before_headers' } : { hang: 'after_tokens', hang_after: after }),
  resetting: (after) => ({ reset_after: after }),
  cut: (after) => ({ cut_after: after }),
  garbage: (after) => (after === 0 ? { garbage_http: true } : { garbage_after: after }),
  failing: (after) => (after === 0 ? { status: 500 } : { error_after: after }),
};

const dying = (after: number): Knobs => ({ die_after: after });

interface Case {
  readonly name: string;
  readonly after: number;
  readonly ask: Ask;
}

function casesOf(key: InferenceKey, kind: string, knobsAt: (after: number) => Knobs): Case[] {
  return Object.entries(points).flatMap(([point, after]) =>
    [true, false].map((stream) => {
      const name = `${kind} ${point} ${stream ? 'streamed' : 'JSON'}`;
      const standin = { output_tokens: tokens, tpot_ms: 5, ...knobsAt(after) };
      return { name, after, ask: askFor(key, name, { stream, maxTokens: tokens, standin }) };
    }),
  );
}

/** The contract for an engine that fails, of what was seen and what was billed. */
function mustKeepContract(stage: Stage, { name, after, ask }: Case, seen: Seen, row: UsageRow | undefined): void {
  const billed = row?.outputTokens ?? 0;
  // A frame of garbage may be left out, and the rest be a whole answer.
  if (seen.complete) return;
  const isFirst = after === 0 || !ask.stream;
  const codes = isFirst ? seen.status >= 502 && seen.status <= 504 : seen.status === 200;
  stage.must(codes && seen.code === 'upstream_error', `${name}: answered ${seen.status} ${seen.code}`);
  if (isFirst) stage.must(billed === 0 && (row?.cost ?? 0n) === 0n, `${name}: ${billed} tokens were billed`);
  else stage.must(billed >= seen.frames && billed > 0, `${name}: ${seen.frames} tokens were sent, ${billed} billed`);
  stage.must(seen.endedMs - seen.beganMs < (silenceSeconds + 4) * 1000 * stage.slack, `${name}: took too long`);
}

async function runCases(
  stage: Stage,
  scene: Scene,
  cases: readonly Case[],
  between: () => Promise<void>,
): Promise<Seen[]> {
  const all: Seen[] = [];
  for (const one of cases) {
    const [where] = scene.where();
    if (where === undefined) throw new Error('the gateway has ended');
    const seen = await askOnce(where, one.ask);
    all.push(seen);
    const row = await within(5000 * stage.slack, async () => {
      const { usage } = await scene.books();
      return usage.find(({ id }) => id === seen.id) ?? null;
    });
    mustKeepContract(stage, one, seen, row ?? undefined);
    await between();
  }
  return all;
}

const failing: Row = {
  name: 'engine-faults',
  what: 'hung, resetting, cut, garbage, failing × before the first byte, at the first token, midway, at the end',
  async run(stage) {
    const scene = await stage.open({ env });
    const key = await scene.key('10');
    await warm(scene, [key]);
    const kinds = Object.entries(faults);
    const groups = await Promise.all(
      kinds.map(([kind, knobsAt]) => runCases(stage, scene, casesOf(key, kind, knobsAt), () => Promise.resolve())),
    );
    const seen = groups.flat();
    stage.saw(seen);
    stage.note(`${seen.length} cases`);
    await conclude(stage, scene, { keys: [key], seen });
  },
};

const died: Row = {
  name: 'engine-killed',
  what: 'the engine is killed (-9) before the first byte, at the first token, midway, at the end',
  async run(stage) {
    const scene = await stage.open({ engine: 'own', env });
    const key = await scene.key('10');
    await warm(scene, [key]);
    const restart = async (): Promise<void> => {
      const url = scene.where()[0]?.url ?? '';
      // Deaths in a row would have it given up, as they should.
      await callApi(url, '/v1/admin/engines/chat/reset', { method: 'POST' });
      const back = await within(20_000 * stage.slack, async () => {
        const [where] = scene.where();
        return where !== undefined && (await askOnce(where, askFor(key, 'again'))).complete;
      });
      stage.must(back !== null, 'the engine was not started again');
    };
    const seen = await runCases(stage, scene, casesOf(key, 'killed', dying), restart);
    stage.saw(seen);
    stage.note(`${seen.length} cases`);
    await conclude(stage, scene, { keys: [key], seen, engineDied: true });
  },
};

/** One of two replicas dies: who has seen nothing of its answer is served by the other, who has seen some is not. */
const retried: Row = {
  name: 'engine-replica-killed',
  what: 'one of two replicas is killed while requests wait for their first byte and streams run',
  async run(stage) {
    const scene = await stage.open({ engine: 'own', replicas: 2, env: { HEADGATE_LEASE_SECONDS: '5' } });
    const key = await scene.key('10');
    await warm(scene, [key]);
    const home = scene.gateways[0]?.home;
    const [where] = scene.where();
    if (home === undefined || where === undefined) throw new Error('there is no gateway');
    const pids = (): number[] => engineRecords(home.dataDir).map(({ pid }) => pid);
    if ((await within(20_000 * stage.slack, () => pids().length === 2)) === null)
      throw new Error('there are not two replicas');
    await sleep(1500);
    const waiting = Array.from({ length: 8 }, (_, number) => {
      const standin = { ttft_ms: 2500, output_tokens: tokens };
      return askOnce(where, askFor(key, `waits ${number}`, { stream: number % 2 === 0, maxTokens: tokens, standin }));
    });
    const streams = Array.from({ length: 8 }, (_, number) => {
      const standin = { tpot_ms: 50, output_tokens: 80 };
      return askOnce(where, askFor(key, `streams ${number}`, { stream: true, maxTokens: 80, standin }));
    });
    await sleep(1000);
    const [victim] = pids();
    if (victim !== undefined) process.kill(victim, 'SIGKILL');
    const waited = await Promise.all(waiting);
    const streamed = await Promise.all(streams);
    stage.saw([...waited, ...streamed]);
    const failed = refused(waited);
    stage.must(failed.length === 0, `${failed.length} that had seen nothing were not tried again: ${namesOf(failed)}`);
    const broken = streamed.filter(({ complete }) => !complete);
    stage.must(broken.length > 0 && broken.length < streamed.length, `${broken.length} of 8 streams were broken off`);
    const wrong = broken.filter(({ code }) => code !== 'upstream_error');
    stage.must(wrong.length === 0, `streams were broken off otherwise: ${namesOf(wrong)}`);
    const twice = [...scene.counted()].filter(
      ([id, { attempts }]) => attempts > 1 && streamed.some((one) => one.id === id),
    );
    stage.must(twice.length === 0, `${twice.length} streams were begun again after their first byte`);
    stage.note(`${waited.length} waited, ${broken.length} of ${streamed.length} streams broken off`);
    await conclude(stage, scene, { keys: [key], seen: [...waited, ...streamed], engineDied: true });
  },
};

export const engineRows: readonly Row[] = [failing, died, retried];
