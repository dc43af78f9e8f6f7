import { callApi } from '../parts/api.ts';
import { type Ask, askOnce, type Seen, type Where } from '../parts/client.ts';
import type { Scene } from '../parts/scene.ts';
import { sleep } from '../parts/wait.ts';
import type { Row } from '../row.ts';
import { conclude, jsonFor, mustWriteNothingOff, namesOf, refused, streamFor, warm } from './steps.ts';

/** Limits and money that are exact on good days too. */

const only = (scene: Scene): Where => {
  const [where] = scene.where();
  if (where === undefined) throw new Error('the gateway has ended');
  return where;
};

const monthTokens = 6000;
const answerTokens = 1000;

function setWhileRunning(name: string, what: string, gateways: number): Row {
  return {
    name,
    what,
    async run(stage) {
      const scene = await stage.open({ gateways });
      const key = await scene.key('10');
      await warm(scene, [key]);
      const at = (number: number): Where => scene.where()[number % gateways] ?? only(scene);
      const ask = (number: string): Ask => jsonFor(key, `month ${number}`, answerTokens, 2000);
      const running = Array.from({ length: 5 }, (_, number) => askOnce(at(number), ask(`running ${number}`)));
      await sleep(500);
      const call = { method: 'PATCH', key: key.organization.managementKey, body: { monthly_token_limit: monthTokens } };
      const changed = await callApi(only(scene).url, `/v1/keys/${key.shownId}`, call);
      stage.must(changed.status === 200, `the limit was answered ${changed.status}`);
      const more = Array.from({ length: 6 }, (_, number) => askOnce(at(number), ask(`after ${number}`)));
      const seen = [...(await Promise.all(running)), ...(await Promise.all(more))];
      stage.saw(seen);
      const rows = (await scene.books()).usage;
      const used = rows.reduce((sum, row) => sum + row.inputTokens + row.outputTokens, 0);
      stage.must(used <= monthTokens, `${used} tokens were used at a limit of ${monthTokens}`);
      stage.note(`${used} of ${monthTokens} tokens`);
      await conclude(stage, scene, { keys: [key], seen });
    },
  };
}

/** All tokens and the end of a stream come before its hold can be extended. */
function oneWrite(name: string, what: string, gateways: number): Row {
  return {
    name,
    what,
    async run(stage) {
      const scene = await stage.open({ gateways });
      const key = await scene.key('100');
      await warm(scene, [key]);
      const asking = Array.from({ length: 4 }, (_, number) => {
        const ask = streamFor(key, `burst ${number}`, 4000, 0);
        return askOnce(only(scene), { ...ask, standin: { one_write: true }, plannedMs: 0 });
      });
      const seen: Seen[] = await Promise.all(asking);
      stage.saw(seen);
      const failed = refused(seen);
      stage.must(failed.length === 0, `${failed.length} were not served: ${namesOf(failed)}`);
      await conclude(stage, scene, { keys: [key], seen });
      mustWriteNothingOff(stage, (await scene.books()).usage);
    },
  };
}

export const limitRows: readonly Row[] = [
  setWhileRunning('limit-set-while-running', 'a monthly limit is set while requests run', 1),
  setWhileRunning('limit-set-while-running-two', 'the same with two gateways and Redis', 2),
  oneWrite('stream-in-one-write', '4,000 tokens and [DONE] in one write, with money in the wallet', 1),
  oneWrite('stream-in-one-write-redis', 'the same with two gateways and Redis', 2),
];
