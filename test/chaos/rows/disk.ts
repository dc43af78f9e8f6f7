import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Seen } from '../parts/client.ts';
import type { Scene } from '../parts/scene.ts';
import { sleep } from '../parts/wait.ts';
import { waitMs } from '../report.ts';
import type { Row, Stage } from '../row.ts';
import { between, conclude, mustKnowKeys, namesOf, recover, refused, startLoad } from './steps.ts';

/** A full disk: nothing is corrupted, and a client that cannot be billed gets a clear error. */

const disks = { gateways: 24, postgres: 200 } as const;
const pieceBytes = 1024 * 1024;
const recoverSeconds = 30;
const answerMsMax = 5000;

/** Takes all that is free on the disk of a folder. @returns gives it back */
function fill(dir: string): () => void {
  const path = join(dir, 'fills-the-disk');
  for (let size = pieceBytes; size >= 1; size = Math.floor(size / 2)) {
    try {
      for (;;) writeFileSync(path, Buffer.alloc(size), { flag: 'a' });
    } catch {
      // No room for a piece of this size.
    }
  }
  return () => rmSync(path, { force: true });
}

interface Filled {
  readonly begin: (scene: Scene) => Promise<void> | void;
  readonly end: (scene: Scene) => Promise<void> | void;
  /** True when known keys must be served all the same. */
  readonly isServed: boolean;
}

async function runFull(stage: Stage, { begin, end, isServed }: Filled): Promise<void> {
  const scene = await stage.open({ disks });
  const { workload, keys } = await startLoad(stage, scene);
  const [key] = keys;
  await sleep(1000);
  const beganMs = performance.now();
  await begin(scene);
  await sleep(stage.seconds * 1000);
  await end(scene);
  const endedMs = performance.now();
  if (key !== undefined) await recover(stage, scene, key, recoverSeconds);
  await sleep(1000);
  await workload.stop();
  stage.saw(workload.seen);
  const meanwhile = between(workload.seen, beganMs, endedMs);
  mustKnowKeys(stage, meanwhile);
  if (isServed) mustServe(stage, meanwhile);
  else
    mustRefuse(
      stage,
      meanwhile.filter((one) => one.beganMs > beganMs + 1000),
    );
  const [gateway] = scene.gateways;
  await gateway?.kill();
  await gateway?.start();
  await conclude(stage, scene, { keys, seen: workload.seen, settleSeconds: 30 });
}

function mustServe(stage: Stage, seen: readonly Seen[]): void {
  const plain = seen.filter(({ ask }) => ask.idempotencyKey === null);
  const failed = refused(plain);
  stage.must(failed.length === 0, `${failed.length} of ${plain.length} were not served meanwhile: ${namesOf(failed)}`);
}

/** With nowhere to write, nothing is made: 503, soon, and when to come again. */
function mustRefuse(stage: Stage, seen: readonly Seen[]): void {
  const stayed = seen.filter(({ hasLeft }) => !hasLeft);
  const isClear = ({ status, code, retryAfter }: Seen): boolean =>
    status === 503 && code !== null && retryAfter !== null;
  const unclear = stayed.filter((one) => !one.complete && !isClear(one));
  stage.must(unclear.length === 0, `${unclear.length} were not refused with 503 and Retry-After: ${namesOf(unclear)}`);
  const late = stayed.filter((one) => waitMs(one) > answerMsMax * stage.slack);
  stage.must(late.length === 0, `${late.length} were told so only after ${answerMsMax / 1000} s`);
}

const undos = new WeakMap<Scene, (() => Promise<void> | void)[]>();
const undo = async (scene: Scene): Promise<void> => {
  for (const one of undos.get(scene) ?? []) await one();
};

const dataDirOf = ({ gateways }: Scene): string => gateways[0]?.home.dataDir ?? '';

/** A server that had no room for its log has ended itself. */
async function startAgainIfOver({ postgres }: Scene): Promise<void> {
  if (!postgres.lives) await postgres.start();
}

const row = (name: string, what: string, filled: Filled): Row => ({
  name,
  what,
  missing: () => (process.geteuid?.() === 0 ? null : 'small disks are mounted by root'),
  run: (stage) => runFull(stage, filled),
});

export const diskRows: readonly Row[] = [
  row('disk-full-spool', "PostgreSQL is away and the gateway's disk is full", {
    isServed: false,
    begin(scene) {
      scene.databaseProxy.takeAway('refused');
      undos.set(scene, [fill(dataDirOf(scene)), () => scene.databaseProxy.restore()]);
    },
    end: undo,
  }),
  row('disk-full-postgres', "PostgreSQL's disk is full, the gateway's is not", {
    isServed: true,
    begin: (scene) => void undos.set(scene, [fill(scene.postgres.dataDir), () => startAgainIfOver(scene)]),
    end: undo,
  }),
  row('disk-full-both', 'both disks are full', {
    isServed: false,
    begin(scene) {
      const both = [fill(dataDirOf(scene)), fill(scene.postgres.dataDir), () => startAgainIfOver(scene)];
      undos.set(scene, both);
    },
    end: undo,
  }),
];
