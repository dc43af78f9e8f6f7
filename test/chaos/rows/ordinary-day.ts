import { join } from 'node:path';
import { formatUsd } from '#base/money.ts';
import { externalFile } from '#test/inference/inference-gateway.ts';
import type { Books } from '../parts/books.ts';
import { checkBooks } from '../parts/checker.ts';
import { type DayAnswer, drawRequest, sendRequest } from '../parts/day-client.ts';
import { type ChaosEngine, startEngine } from '../parts/engine.ts';
import { randomOf } from '#test/random.ts';
import type { Scene } from '../parts/scene.ts';
import { within } from '../parts/wait.ts';
import type { Row, Stage } from '../row.ts';
import { mustWriteNothingOff, openKeys, untilNothingIsHeld } from './steps.ts';

/** Ordinary traffic without any fault, on an engine whose template is far longer than a request's hold expects. */

const templateTokens = 1300;
const clients = 24;
const settleSeconds = 60;

const ordinaryDay: Row = {
  name: 'ordinary-day',
  what: 'all routes, streams and JSON, clients that leave, a long chat template: nothing is written off (--requests)',
  limitSeconds: 3600,
  async run(stage) {
    const embed = await startEngine({
      id: 'embed',
      journal: join(stage.dir, 'embed-journal'),
      flags: ['--runner', 'pooling', '--convert', 'embed'],
    });
    stage.later(() => embed.close());
    const file = externalFile('embed', embed.url, { taskType: 'embedding', lines: ['kind: vllm'] });
    const scene = await stage.open({ templateTokens, files: () => ({ embed: file }) });
    const keys = await openKeys(scene, { organizations: 4, keysEach: 2 });
    const answers = await spendDay(stage, scene, (number) => drawRequest(randomOf(stage.seed, `day ${number}`), keys));
    await untilNothingIsHeld(stage, scene, keys, settleSeconds * 1000 * stage.slack);
    const complete = answers.filter(({ isComplete }) => isComplete);
    const left = answers.filter(({ isComplete, hasLeft }) => hasLeft && !isComplete);
    const failed = answers.filter(({ isComplete, hasLeft }) => !hasLeft && !isComplete);
    const [first] = failed;
    const example = `${first?.request.path}: ${first?.status} ${first?.tail}`;
    stage.must(failed.length === 0, `${failed.length} failed, such as ${example}`);
    const books = await booksWith(stage, scene, complete);
    for (const problem of checkBooks(books)) stage.must(false, problem);
    mustWriteNothingOff(stage, books.usage);
    stage.note(`${answers.length} requests, ${complete.length} complete, ${left.length} left by the client`);
    await noteFigures(stage, books, [scene.engine, embed]);
  },
};

/** Sends all requests of the day, as many at a time as there are clients. */
async function spendDay(
  stage: Stage,
  scene: Scene,
  draw: (number: number) => ReturnType<typeof drawRequest>,
): Promise<DayAnswer[]> {
  const answers: DayAnswer[] = [];
  let sent = 0;
  const url = scene.where()[0]?.url ?? '';
  const runClient = async (): Promise<void> => {
    while (sent < stage.requests) {
      sent += 1;
      answers.push(await sendRequest(url, draw(sent)));
    }
  };
  await Promise.all(Array.from({ length: clients }, runClient));
  return answers;
}

/** Returns the books once they have every complete answer. */
async function booksWith(stage: Stage, scene: Scene, complete: readonly DayAnswer[]): Promise<Books> {
  const missingIn = ({ usage }: Books): number => {
    const ids = new Set(usage.map(({ id }) => id));
    return complete.filter(({ id }) => !ids.has(id ?? '')).length;
  };
  let books = await scene.books();
  await within(settleSeconds * 1000 * stage.slack, async () => {
    books = await scene.books();
    return missingIn(books) === 0;
  });
  stage.must(missingIn(books) === 0, `${missingIn(books)} complete answers are not in the books`);
  return books;
}

/** Notes what was charged and written off, and how far the bill is from the engines' counters. */
async function noteFigures(stage: Stage, { usage }: Books, engines: readonly ChaosEngine[]): Promise<void> {
  const counters = await Promise.all(engines.map((engine) => engine.counters()));
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
  const usd = (values: readonly bigint[]): string => formatUsd(values.reduce((total, value) => total + value, 0n));
  const counted = {
    prompt: sum(counters.map(({ promptTokens }) => promptTokens)),
    output: sum(counters.map(({ outputTokens }) => outputTokens)),
  };
  const billed = {
    prompt: sum(usage.map(({ inputTokens }) => inputTokens)),
    output: sum(usage.map(({ outputTokens }) => outputTokens)),
  };
  const isMore = billed.prompt > counted.prompt || billed.output > counted.output;
  stage.must(!isMore, `${billed.prompt} and ${billed.output} tokens are billed, more than the engines counted`);
  stage.note(`charged $${usd(usage.map(({ cost }) => cost))}`);
  stage.note(`written off $${usd(usage.map(({ writtenOff }) => writtenOff))}`);
  stage.note(`billed ${billed.prompt} prompt and ${billed.output} output tokens`);
  const unbilled = `${counted.prompt - billed.prompt} and ${counted.output - billed.output}`;
  stage.note(`${unbilled} fewer than the engines counted`);
}

export const ordinaryDayRows: readonly Row[] = [ordinaryDay];
