import { join } from 'node:path';
import { runCli } from '#test/cli/run-cli.ts';
import { callApi, type InferenceKey, mustApi, type Organization } from '../parts/api.ts';
import { askOnce, type Seen, type Where } from '../parts/client.ts';
import type { ChaosPostgres } from '../parts/postgres.ts';
import type { Scene } from '../parts/scene.ts';
import { secondsSince, sleep, within } from '../parts/wait.ts';
import type { Row, Stage } from '../row.ts';
import { askFor, namesOf, refused, streamFor, warm } from './steps.ts';

/** PostgreSQL goes on without its last transactions, under gateways that know them. */

interface Rewind {
  /** Sets the moment that PostgreSQL goes back to. */
  keep(scene: Scene): Promise<void>;
  /** Has PostgreSQL be as it was then. */
  goBack(scene: Scene): Promise<void>;
}

/** State that the moment knows, and changes after it. */
interface Cast {
  readonly kept: InferenceKey;
  /** An organization with a balance that is too small for anything. */
  readonly poor: InferenceKey;
  /** Keys of after the moment: of an organization of that time, and of one of before. */
  readonly lost: readonly InferenceKey[];
}

const rightWithinSeconds = 10;
const answerTimeoutMs = 60_000;

const statusOf = async (where: Where, key: InferenceKey): Promise<number> => {
  const { status } = await askOnce(where, askFor(key, 'probe'));
  return status;
};

const credit = (scene: Scene, { shownId }: Organization, reference: string): Promise<unknown> =>
  mustApi(scene.where()[0]?.url ?? '', '/v1/wallet/credits', {
    body: { organization_id: shownId, amount: '10', reference },
  });

/** Writes the changes that the restore loses, and waits until every gateway knows them. */
async function passMoment(scene: Scene, rewinding: Rewind): Promise<Cast> {
  const kept = await scene.key('10');
  const poor = await scene.key('0.0000001');
  await warm(scene, [kept]);
  await rewinding.keep(scene);
  const lost = [await scene.key('10'), await scene.keyOf(kept.organization)];
  await credit(scene, kept.organization, 'lost');
  await credit(scene, poor.organization, 'lost');
  await warm(scene, [...lost, poor]);
  return { kept, poor, lost };
}

/** Checks whether a gateway uses the history as it is now. */
async function isRight(where: Where, { kept, poor, lost }: Cast): Promise<boolean> {
  for (const key of lost) if ((await statusOf(where, key)) !== 401) return false;
  return (await statusOf(where, poor)) === 402 && (await statusOf(where, kept)) === 200;
}

async function mustBecomeRight(stage: Stage, scene: Scene, cast: Cast, beganMs: number): Promise<void> {
  const limitMs = rightWithinSeconds * 1000 * stage.slack;
  const found = await Promise.all(
    scene.where().map((where) => within(limitMs, () => isRight(where, cast).then((right) => right || pause()))),
  );
  stage.must(!found.includes(null), `a gateway goes by the lost history after ${limitMs / 1000} s`);
  stage.recovered(secondsSince(beganMs));
}

const pause = async (): Promise<false> => {
  await sleep(50);
  return false;
};

/** The usage that the API lists of a key's organization is that of this key only, with all recorded requests. */
async function mustListOwn(stage: Stage, scene: Scene, key: InferenceKey, seen: readonly Seen[]): Promise<void> {
  const { managementKey, shownId } = key.organization;
  const ids = seen.filter(({ ask }) => ask.secret === key.secret).flatMap(({ id }) => (id === null ? [] : [id]));
  for (const { url } of scene.where()) {
    const answer = await callApi(url, '/v1/usage/requests?limit=100', { key: managementKey });
    stage.must(answer.status === 200, `usage of ${shownId} is answered ${answer.status}`);
    const rows: { readonly id: string; readonly key_id: string }[] = answer.body?.data ?? [];
    const strangers = rows.filter((row) => row.key_id !== key.shownId);
    stage.must(strangers.length === 0, `usage of ${shownId} has ${strangers.length} records of other keys`);
    const missing = ids.filter((id) => !rows.some((row) => row.id === id));
    stage.must(missing.length === 0, `usage of ${shownId} lacks ${missing.length} of ${ids.length} answered requests`);
  }
}

async function mustProve(stage: Stage, scene: Scene): Promise<void> {
  const env = { DATABASE_URL: scene.postgres.url, HEADGATE_DATA_DIR: join(stage.dir, 'proof') };
  const { code, stdout, stderr } = await runCli(['verify-books'], { env });
  stage.must(code === 0, `verify-books: ${stdout}${stderr}`);
}

function rewound(name: string, what: string, rewind: (stage: Stage) => Rewind): Row {
  return {
    name,
    what,
    limitSeconds: 240,
    async run(stage) {
      const scene = await stage.open({ gateways: 2 });
      const rewinding = rewind(stage);
      const cast = await passMoment(scene, rewinding);
      const [first] = scene.where();
      if (first === undefined) throw new Error('no gateway lives');
      const running = [cast.kept, ...cast.lost].map((key) => askOnce(first, streamFor(key, 'across', 60, 12_000)));
      await sleep(300);
      await rewinding.goBack(scene);
      const beganMs = performance.now();
      await mustBecomeRight(stage, scene, cast, beganMs);
      // It gets the codes of what was lost.
      const fresh = await scene.key('10');
      const asked = scene
        .where()
        .flatMap((where) => [fresh, cast.kept].map((key) => askOnce(where, askFor(key, 'after'))));
      const seen = await Promise.all([...asked, ...running]);
      stage.saw(seen);
      const ofKept = seen.filter(({ ask }) => !cast.lost.some(({ secret }) => secret === ask.secret));
      const failed = refused(ofKept);
      stage.must(failed.length === 0, `${failed.length} were not served: ${namesOf(failed)}`);
      const booked = await within(answerTimeoutMs, async () => {
        const ids = new Set((await scene.books()).usage.map(({ id }) => id));
        return ofKept.every(({ id }) => id === null || ids.has(id));
      });
      stage.must(booked !== null, 'not every answered request is in the books');
      await mustListOwn(stage, scene, fresh, seen);
      await mustListOwn(stage, scene, cast.kept, seen);
      await mustProve(stage, scene);
    },
  };
}

function failover(stage: Stage): Rewind {
  let standby: ChaosPostgres | null = null;
  return {
    async keep({ postgres }) {
      const started = await postgres.startStandby();
      stage.later(() => started.close());
      standby = started;
      await postgres.leaveBehind(started);
    },
    async goBack(scene) {
      if (standby === null) throw new Error('there is no stand-by');
      await scene.postgres.stop('kill');
      await standby.promote();
      scene.databaseProxy.pointTo(standby.port);
      scene.postgres = standby;
    },
  };
}

function restore(stage: Stage): Rewind {
  const path = join(stage.dir, 'kept.backup');
  const run = async (scene: Scene, words: readonly string[]): Promise<void> => {
    const env = { DATABASE_URL: scene.postgres.url, HEADGATE_DATA_DIR: join(stage.dir, 'restoring') };
    const { code, stdout, stderr } = await runCli(words, { env });
    if (code !== 0) throw new Error(`headgate ${words.join(' ')}: ${stdout}${stderr}`);
  };
  return {
    keep: (scene) => run(scene, ['backup', path]),
    async goBack(scene) {
      scene.databaseProxy.takeAway('refused');
      const gone = await within(answerTimeoutMs, async () => {
        const rows = await scene.postgres.sql`select from pg_stat_activity where application_name like 'headgate%'`;
        return rows.length === 0;
      });
      if (gone === null) throw new Error('gateways do not let go of PostgreSQL');
      await run(scene, ['restore', path, '--replace', '--pending', 'resume', '--spool', 'leave']);
      await scene.databaseProxy.restore();
    },
  };
}

export const postgresHistoryRows: readonly Row[] = [
  rewound(
    'pg-failover-behind',
    'PostgreSQL is killed, a stand-by that lacks its last transactions takes over',
    failover,
  ),
  rewound('pg-restored', 'a backup is restored in the place of the database, while gateways run', restore),
];
