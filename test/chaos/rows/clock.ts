import { existsSync, globSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { callApi, type InferenceKey, mustApi } from '../parts/api.ts';
import { type Ask, askOnce, type Seen, type Where } from '../parts/client.ts';
import type { Scene } from '../parts/scene.ts';
import { secondsSince, sleep, within } from '../parts/wait.ts';
import type { Row, Stage } from '../row.ts';
import { askFor, conclude, streamFor, warm } from './steps.ts';

/** A gateway's clock jumps: nothing expires early or lives on, limits recover within a minute, the next start works. */

const libraries = ['/usr/lib/*/faketime/libfaketimeMT.so.1', '/usr/lib/faketime/libfaketimeMT.so.1'];
const library = libraries.flatMap((pattern) => globSync(pattern)).find((path) => existsSync(path)) ?? null;

const recoverSecondsMax = 65;
const limit = 3;

/** A clock that is moved by writing a file; the one that only runs forward stays right. */
class Clock {
  readonly #path: string;

  constructor(dir: string, name: string) {
    this.#path = join(dir, `clock-${name}`);
    this.set(0);
  }

  set(seconds: number): void {
    writeFileSync(this.#path, `${seconds < 0 ? '' : '+'}${seconds}s\n`);
  }

  get env(): Record<string, string> {
    return {
      LD_PRELOAD: library ?? '',
      FAKETIME_TIMESTAMP_FILE: this.#path,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      DONT_FAKE_MONOTONIC: '1',
      NO_FAKE_STAT: '1',
    };
  }
}

interface Course {
  readonly stage: Stage;
  readonly scene: Scene;
  readonly clock: Clock;
  readonly seen: Seen[];
  readonly name: string;
}

const jumping = (scene: Scene): Where => {
  const [where] = scene.where();
  if (where === undefined) throw new Error('the gateway has ended');
  return where;
};

async function ask({ scene, seen }: Course, asked: Ask): Promise<Seen> {
  const one = await askOnce(jumping(scene), asked);
  seen.push(one);
  return one;
}

/** Uses a key's requests of this minute up. */
async function useUp(course: Course, key: InferenceKey, name: string): Promise<void> {
  for (let number = 0; number < limit; number += 1) await ask(course, askFor(key, `${name} ${number}`));
}

async function mustRecover(course: Course, key: InferenceKey, name: string): Promise<void> {
  const beganMs = performance.now();
  const found = await within(recoverSecondsMax * 1000, async () => {
    const one = await ask(course, askFor(key, `${name} again`));
    if (!one.complete) await sleep(1000);
    return one.complete;
  });
  const { stage } = course;
  stage.must(found !== null, `${course.name}: limits have not recovered ${recoverSecondsMax} s after ${name}`);
  if (found !== null) stage.recovered(secondsSince(beganMs));
}

async function runCourse(stage: Stage, name: string, gateways: number, jumpSeconds: number): Promise<void> {
  const clock = new Clock(stage.dir, name);
  const scene = await stage.open({ name, gateways, asleep: true });
  for (const gateway of scene.gateways) await gateway.start(gateway.index === 0 ? clock.env : {});
  const course: Course = { stage, scene, clock, seen: [], name };
  const dayAhead = Math.floor(Date.now() / 1000) + 86_400;
  const keys = {
    forward: await scene.key('10', { requests_per_minute: limit }),
    back: await scene.key('10', { requests_per_minute: limit }),
    stored: await scene.key('10', { store_requests: true }),
    expiring: await scene.key('10', { expires_at: dayAhead }),
  };
  await warm(scene, [keys.stored, keys.expiring]);
  const stored = await ask(course, askFor(keys.stored, `${name} stored`));
  const claim = askFor(keys.stored, `${name} claimed`, { idempotencyKey: `${name} claimed` });
  await ask(course, claim);
  await useUp(course, keys.forward, 'forward');
  const streams = Array.from({ length: 3 }, (_, number) =>
    ask(course, streamFor(keys.stored, `${name} ${number}`, 60, 3000)),
  );
  await sleep(500);

  clock.set(jumpSeconds);
  await mustServe(course, keys.expiring, 'a key that expires tomorrow, after the jump');
  await mustRecover(course, keys.forward, 'the jump');
  await mustHave(course, keys.stored, stored);
  await mustReplay(course, claim);
  await useUp(course, keys.back, 'back');
  const restarted = await restart(course);
  if (restarted) await mustServe(course, keys.stored, 'after a start with the wrong clock');

  clock.set(0);
  await mustServe(course, keys.expiring, 'a key that expires tomorrow, after the way back');
  await mustRecover(course, keys.back, 'the way back');
  await mustHave(course, keys.stored, stored);
  await mustReplay(course, claim);
  if (await restart(course)) await mustServe(course, keys.stored, 'after a start with the right clock');
  const cut = (await Promise.all(streams)).filter(({ complete }) => !complete);
  stage.must(cut.length === 0, `${name}: ${cut.length} streams did not outlive the jump`);
  stage.saw(course.seen);
  await conclude(stage, scene, { keys: Object.values(keys), seen: course.seen, settleSeconds: 30 });
}

async function mustServe(course: Course, key: InferenceKey, when: string): Promise<void> {
  const one = await ask(course, askFor(key, when));
  course.stage.must(one.complete, `${course.name}: ${when}, a request is answered ${one.status} ${one.code}`);
}

/** A stored request is kept for 30 days, whatever a clock says. */
async function mustHave({ stage, scene, name }: Course, key: InferenceKey, { id }: Seen): Promise<void> {
  const path = `/v1/usage/requests/${id}/content`;
  const { status } = await callApi(jumping(scene).url, path, { key: key.organization.managementKey });
  stage.must(status === 200, `${name}: a stored request is answered ${status}`);
}

/** An Idempotency-Key is kept for a day. */
async function mustReplay(course: Course, claim: Ask): Promise<void> {
  const one = await ask(course, claim);
  course.stage.must(one.replayed, `${course.name}: an Idempotency-Key was run again`);
}

/** In order, as it would be for a change of its settings. */
async function restart({ stage, scene, clock, name }: Course): Promise<boolean> {
  const [gateway] = scene.gateways;
  const code = await gateway?.terminate(40_000);
  stage.must(code === 0, `${name}: the gateway ended with ${code}`);
  try {
    await gateway?.start(clock.env);
    await mustApi(jumping(scene).url, '/v1/models');
    return true;
  } catch (error) {
    stage.must(false, `${name}: the next start fails: ${error instanceof Error ? error.message : String(error)}`);
    clock.set(0);
    await gateway?.kill();
    await gateway?.start(clock.env);
    return false;
  }
}

const row = (name: string, what: string, jumpSeconds: number): Row => ({
  name,
  what,
  missing: () => (library === null ? 'there is no libfaketime' : null),
  async run(stage) {
    await Promise.all([runCourse(stage, 'alone', 1, jumpSeconds), runCourse(stage, 'of two', 2, jumpSeconds)]);
  },
});

export const clockRows: readonly Row[] = [
  row('clock-hour', "a gateway's clock jumps by an hour, and back", 3600),
  row('clock-month', "a gateway's clock jumps by 31 days, and back", 31 * 86_400),
];
