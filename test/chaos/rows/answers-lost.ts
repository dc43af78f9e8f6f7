import { callApi, type InferenceKey, type Organization, type Told } from '../parts/api.ts';
import { type Ask, askOnce, type Seen } from '../parts/client.ts';
import type { Scene } from '../parts/scene.ts';
import type { Answered, Fate } from '../proxy/postgres-reader.ts';
import { sleep, within } from '../parts/wait.ts';
import type { Row, Stage } from '../row.ts';
import { askFor, conclude, warm } from './steps.ts';

/**
 * A statement is done and its answer is lost, at every statement that writes: once with the connection, once in silence.
 * It was written once, and a client that asks again gets one result.
 */

interface Operation {
  readonly name: string;
  readonly what: string;
  /** Does it once, and again until it is answered well; all names in it are the turn's own. */
  run(actor: Actor, turn: string): Promise<void>;
}

interface Actor {
  readonly stage: Stage;
  readonly scene: Scene;
  readonly key: InferenceKey;
  readonly seen: Seen[];
}

const retryMs = 300;
/** So much that does not hold says enough: the rest would only take its time. */
const brokenMax = 4;
const ways: readonly Fate[] = ['lose', 'swallow'];
/** How long it is tried again. */
const triedMsMax = 20_000;
/**
 * The same for a change of the API. A connection that says nothing is given up 5 s after its statements' limit of 30 s;
 * until then a transaction on it keeps its rows, and requests that need them get a timely answer to retry.
 */
const changedMsMax = 60_000;
/** The most time until a statement comes whose answer is lost. */
const comesMsMax = 3000;
/** No answer may take longer, whatever is lost. */
const answerMsMax = 10_000;

const writes = (text: string): boolean => /\b(insert|update|delete|commit)\b/i.test(text) && !isBackground(text);

/** True for statements that gateways write by themselves from time to time. */
const isBackground = (text: string): boolean =>
  /(insert\s+into|update|delete\s+from)\s+"?(gateways|usage_refusals|fleet_\w+|engine_\w+|gateway_runs|replica_runs)"?/i.test(
    text,
  ) || /last_used/i.test(text);

/** The statement without its values' spacing and case, to compare by. */
const shapeOf = (text: string): string => text.replaceAll(/\s+/g, ' ').trim().toLowerCase();

function operationRow(operation: Operation): Row {
  return {
    name: operation.name,
    what: operation.what,
    // Changes that are swallowed each time take about 40 s.
    limitSeconds: 1200,
    async run(stage) {
      const scene = await stage.open({ env: { HEADGATE_LEASE_SECONDS: '5' } });
      const key = await scene.key('10');
      await warm(scene, [key]);
      const actor: Actor = { stage, scene, key, seen: [] };
      const shapes = await shapesOf(actor, operation);
      stage.must(shapes.length > 0, 'nothing was written');
      const losses = shapes.flatMap((shape) => ways.map((way) => ({ shape, way })));
      let done = 0;
      for (const loss of losses) {
        if (stage.broken >= brokenMax) break;
        await loseOnce(actor, operation, loss);
        done += 1;
      }
      stage.note(`${done} of ${losses.length} answers lost, of ${shapes.length} statements`);
      stage.saw(actor.seen);
      await conclude(stage, scene, { keys: [key], seen: actor.seen });
    },
  };
}

/** The statements that an operation writes with each time when nothing goes wrong. */
async function shapesOf(actor: Actor, operation: Operation): Promise<string[]> {
  const shapes = new Set<string>();
  // Names that the books number are written with the first that has them, and never again.
  await operation.run(actor, 'unwatched');
  await sleep(300);
  actor.scene.judge = ({ text }) => {
    if (writes(text)) shapes.add(shapeOf(text));
    return 'pass';
  };
  await operation.run(actor, 'first');
  await sleep(300);
  actor.scene.judge = () => 'pass';
  return [...shapes];
}

interface Loss {
  readonly shape: string;
  readonly way: Fate;
}

async function loseOnce(actor: Actor, operation: Operation, { shape, way }: Loss): Promise<void> {
  const { scene, stage } = actor;
  let lost = 0;
  scene.judge = ({ text, error }: Answered): Fate => {
    if (lost > 0 || error !== null || shapeOf(text) !== shape) return 'pass';
    lost += 1;
    return way;
  };
  await operation.run(actor, `${String(way)} ${shape.slice(0, 40)} ${performance.now()}`);
  // An answer from the spool is written a moment later.
  await within(comesMsMax * stage.slack, () => lost === 1);
  scene.judge = () => 'pass';
  stage.must(lost === 1, `the statement did not come again: ${shape.slice(0, 60)}`);
  // The silent connection is broken now, so that the next loss comes by itself.
  if (way === 'swallow') scene.databaseProxy.cut();
  await sleep(200);
}

/** Until it is complete. */
async function askUntilComplete({ stage, scene, seen }: Actor, ask: Ask): Promise<void> {
  const patient = { ...ask, patienceMs: 1.5 * answerMsMax };
  const found = await within(triedMsMax * stage.slack, async () => {
    const [where] = scene.where();
    if (where === undefined) throw new Error('the gateway has ended');
    const one = await askOnce(where, patient);
    seen.push(one);
    mustBeSoon(stage, 'an inference request', one.endedMs - one.beganMs);
    if (!one.complete) await sleep(retryMs);
    return one.complete;
  });
  stage.must(found !== null, `"${ask.name.slice(0, 60)}" was not answered in ${triedMsMax / 1000} s`);
}

type ApiCall = Parameters<typeof callApi>[2];

/** Waits until it is done, or rejected permanently. */
async function callUntilDone({ stage, scene }: Actor, path: string, call: ApiCall): Promise<Told> {
  let told: Told | null = null;
  const found = await within(changedMsMax * stage.slack, async () => {
    const beganMs = performance.now();
    told = await callApi(scene.where()[0]?.url ?? '', path, call);
    mustBeSoon(stage, path, performance.now() - beganMs);
    if (told.status >= 200 && told.status < 500) return told;
    await sleep(retryMs);
    return null;
  });
  if (found === null)
    throw new Error(`${path} still answers ${statusOf(told)} after ${(changedMsMax * stage.slack) / 1000} s`);
  return found;
}

const statusOf = (told: Told | null): number => told?.status ?? 0;

function mustBeSoon(stage: Stage, what: string, ms: number): void {
  stage.must(ms < answerMsMax * stage.slack, `${what} took ${(ms / 1000).toFixed(1)} s`);
}

/** A key of the actor's organization, or of one that has nothing. */
async function openKeyOf(actor: Actor, organization: Pick<Organization, 'managementKey'>): Promise<OpenedKey> {
  const body = { name: 'chaos', requests_per_minute: null, max_concurrency: null };
  const made = await callUntilDone(actor, '/v1/keys', { body, key: organization.managementKey });
  return { ...actor.key, shownId: made.body.id, secret: made.body.secret };
}

type OpenedKey = InferenceKey;

const settling: Operation = {
  name: 'answer-lost-settling',
  what: 'the answer of a statement is lost while requests are settled',
  run: (actor, turn) => askUntilComplete(actor, askFor(actor.key, `settle ${turn}`)),
};

const crediting: Operation = {
  name: 'answer-lost-credit',
  what: 'the answer of a statement is lost while credit is added; the credit can be spent',
  async run(actor, turn) {
    const { scene, stage } = actor;
    const made = await callUntilDone(actor, '/v1/organizations', { body: { name: `Organization of ${turn}` } });
    const key = await openKeyOf(actor, { managementKey: made.body.management_key });
    const [where] = scene.where();
    const ask = askFor(key, `spend ${turn}`, { maxTokens: 50 });
    if (where !== undefined) actor.seen.push(await askOnce(where, ask));
    const body = { organization_id: made.body.id, amount: '1', reference: turn };
    await callUntilDone(actor, '/v1/wallet/credits', { body });
    await askUntilComplete(actor, askFor(key, `spend again ${turn}`, { maxTokens: 50 }));
    const rows = await scene.postgres.sql`select from ledger_entries
      where type = 'credit' and reference = ${turn}`;
    stage.must(rows.length === 1, `a credit is in the books ${rows.length} times`);
  },
};

const claiming: Operation = {
  name: 'answer-lost-idempotency',
  what: 'the answer of a statement is lost under an Idempotency-Key; it is repeated until it is answered, then once more',
  async run(actor, turn) {
    const name = `claim ${turn}`.slice(0, 200).replaceAll(/[^\x20-\x7e]/g, '?');
    const ask = askFor(actor.key, name, { idempotencyKey: name });
    await askUntilComplete(actor, ask);
    await askUntilComplete(actor, ask);
  },
};

const revoking: Operation = {
  name: 'answer-lost-revoking',
  what: 'the answer of a statement is lost while a key is revoked; the key is refused from then on',
  async run(actor, turn) {
    const { scene, stage, key } = actor;
    const spare = await openKeyOf(actor, key.organization);
    await askUntilComplete(actor, askFor(spare, `before ${turn}`));
    const call = { method: 'DELETE', key: key.organization.managementKey };
    await callUntilDone(actor, `/v1/keys/${spare.shownId}`, call);
    const [where] = scene.where();
    if (where === undefined) return;
    const after = await askOnce(where, askFor(spare, `after ${turn}`));
    stage.must(after.status === 401, `a revoked key is answered ${after.status}`);
  },
};

const limiting: Operation = {
  name: 'answer-lost-limits',
  what: 'the answer of a statement is lost while limits of a key are changed; they count from then on',
  async run(actor, turn) {
    const { scene, stage, key } = actor;
    const spare = await openKeyOf(actor, key.organization);
    await askUntilComplete(actor, askFor(spare, `before ${turn}`));
    const call = { method: 'PATCH', key: key.organization.managementKey, body: { requests_per_minute: 1 } };
    await callUntilDone(actor, `/v1/keys/${spare.shownId}`, call);
    const [where] = scene.where();
    if (where === undefined) return;
    const after = await askOnce(where, askFor(spare, `after ${turn}`));
    actor.seen.push(after);
    stage.must(after.status === 429, `a key past its new limit is answered ${after.status}`);
  },
};

const runsOnTimes = 5;

/** The connection breaks while the statement runs: the server ends it all the same, beside the repetition. */
const runsOn: Row = {
  name: 'commit-runs-on',
  what: 'connections break while settling statements wait for a lock; the server goes on with them',
  async run(stage) {
    const scene = await stage.open();
    const key = await scene.key('10');
    await warm(scene, [key]);
    const actor: Actor = { stage, scene, key, seen: [] };
    for (let number = 0; number < runsOnTimes && stage.broken === 0; number += 1) {
      const session = await scene.postgres.sql.reserve();
      await session`begin`;
      await session`select from wallets where organization_id = ${key.organization.id} for update`;
      const asking = askUntilComplete(actor, askFor(key, `runs on ${number}`));
      await sleep(500);
      scene.databaseProxy.cut();
      await sleep(500);
      await session`commit`;
      session.release();
      await asking;
    }
    stage.saw(actor.seen);
    const { figures } = await conclude(stage, scene, { keys: [key], seen: actor.seen });
    stage.must(figures.withheld === 0, `${figures.withheld} answers were made, charged and held back`);
  },
};

const operations: readonly Operation[] = [settling, crediting, claiming, revoking, limiting];

export const answersLostRows: readonly Row[] = [runsOn, ...operations.map(operationRow)];
