import OpenAI from 'openai';
import { callApi, type InferenceKey } from '../parts/api.ts';
import type { Scene } from '../parts/scene.ts';
import type { Answered, Fate } from '../proxy/postgres-reader.ts';
import { sleep, within } from '../parts/wait.ts';
import type { Row, Stage } from '../row.ts';
import { conclude, warm } from './steps.ts';

/** The answer of COMMIT is lost while something is created: by SDKs that repeat by themselves, there is one of it. */

interface Creation {
  readonly name: string;
  /** The statement before the COMMIT that is lost. */
  readonly before: RegExp;
  /** Creates one whose name is the turn's. */
  create(actor: Actor, turn: string): Promise<void>;
  /** How many of that name there are. */
  count(actor: Actor, turn: string): Promise<number>;
}

interface Actor {
  readonly scene: Scene;
  readonly key: InferenceKey;
  readonly client: OpenAI;
}

const batchMsMax = 60_000;
const askAgainMs = 300;
const settleMs = 1000;
const ways: readonly Fate[] = ['lose', 'swallow'];
const fileText = (turn: string): string => {
  const body = { model: 'chat', max_tokens: 4, messages: [{ role: 'user', content: turn }] };
  return `${JSON.stringify({ custom_id: turn, method: 'POST', url: '/v1/chat/completions', body })}\n`;
};

const upload = ({ client }: Actor, turn: string) =>
  client.files.create({ file: new File([fileText(turn)], `${turn}.jsonl`), purpose: 'batch' });

/** By the JSON API, for what the SDK has no method for. @throws Error for what is not created */
function byApi(name: string, before: RegExp, path: string, bodyOf: (turn: string) => object): Creation {
  return {
    name,
    before,
    async create({ scene, key }, turn) {
      const call = { body: bodyOf(turn), key: key.organization.managementKey };
      const { status } = await callApi(scene.where()[0]?.url ?? '', path, call);
      if (status < 200 || status > 299) throw new Error(`${path} answered ${status}`);
    },
    async count({ scene }, turn) {
      const rows = await scene.postgres.sql`select from ${scene.postgres.sql(name)} where name = ${turn}`;
      return rows.length;
    },
  };
}

const creations: readonly Creation[] = [
  {
    name: 'files',
    before: /update "files" set.*"filename"/,
    create: async (actor, turn) => void (await upload(actor, turn)),
    async count({ scene }, turn) {
      const rows = await scene.postgres.sql`select from files where filename = ${`${turn}.jsonl`}`;
      return rows.length;
    },
  },
  {
    name: 'batches',
    before: /insert into "batches"/,
    async create(actor, turn) {
      const { id } = await upload(actor, turn);
      const batch = { input_file_id: id, endpoint: '/v1/chat/completions', completion_window: '24h' } as const;
      const made = await actor.client.batches.create({ ...batch, metadata: { turn } });
      const completed = await within(batchMsMax, async () => {
        const { status } = await actor.client.batches.retrieve(made.id);
        if (status !== 'completed') await sleep(askAgainMs);
        return status === 'completed';
      });
      if (completed === null) throw new Error(`the batch is not completed after ${batchMsMax / 1000} s`);
    },
    async count({ scene }, turn) {
      const rows = await scene.postgres.sql`select from batches where metadata->>'turn' = ${turn}`;
      return rows.length;
    },
  },
  byApi('projects', /insert into "projects"/, '/v1/projects', (name) => ({ name })),
  byApi('api_keys', /insert into "api_keys"/, '/v1/keys', (name) => ({ name })),
];

async function loseOnce(stage: Stage, actor: Actor, creation: Creation, way: Fate): Promise<void> {
  const { scene } = actor;
  const turn = `${creation.name} ${String(way)} ${stage.seed}`.replaceAll(' ', '-');
  let isNext = false;
  let lost = 0;
  scene.judge = ({ text, error }: Answered): Fate => {
    if (error !== null || lost > 0) return 'pass';
    if (creation.before.test(text)) isNext = true;
    if (!isNext || !/^\s*commit/i.test(text)) return 'pass';
    lost += 1;
    return way;
  };
  const failure = await creation.create(actor, turn).then(
    () => null,
    (error: unknown) => String(error),
  );
  scene.judge = () => 'pass';
  stage.must(lost === 1, `${creation.name}: no COMMIT was lost`);
  stage.must(failure === null, `${creation.name}, ${String(way)}: ${failure}`);
  const count = await creation.count(actor, turn);
  stage.must(count === 1, `${creation.name}, ${String(way)}: there are ${count}`);
  // The silent connection is broken now, so that the next loss comes by itself.
  if (way === 'swallow') scene.databaseProxy.cut();
  await sleep(settleMs);
}

export const creationRows: readonly Row[] = [
  {
    name: 'answer-lost-creating',
    what: 'the answer of COMMIT is lost while files, batches, projects and keys are created; one of each, one bill',
    limitSeconds: 300,
    async run(stage) {
      const scene = await stage.open();
      const key = await scene.key('10');
      await warm(scene, [key]);
      const client = new OpenAI({ apiKey: key.secret, baseURL: `${scene.where()[0]?.url ?? ''}/v1` });
      const actor = { scene, key, client };
      for (const creation of creations) for (const way of ways) await loseOnce(stage, actor, creation, way);
      const { usage } = await scene.books();
      const billed = usage.filter(({ organizationId }) => organizationId === key.organization.id);
      // One that warms the key, and a line of each batch.
      stage.must(billed.length === 1 + ways.length, `${billed.length} requests were billed`);
      stage.note(`${creations.length * ways.length} answers of COMMIT lost`);
      await conclude(stage, scene, { keys: [key], seen: [] });
    },
  },
];
