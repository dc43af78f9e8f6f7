import { callApi, type InferenceKey } from '../parts/api.ts';
import { check, type Findings } from '../parts/checker.ts';
import { type Ask, askOnce, type Seen, type Where } from '../parts/client.ts';
import type { Scene } from '../parts/scene.ts';
import { secondsSince, sleep, within } from '../parts/wait.ts';
import { startWorkload, type Workload, type WorkloadOptions } from '../parts/workload.ts';
import type { Stage } from '../row.ts';

/** Steps that rows have in common: load, probing whether all is as before, and the comparison at the end. */

/** A request that takes a fixed time, with no choice left to anybody. */
export function askFor(key: InferenceKey, name: string, more: Partial<Ask> = {}): Ask {
  return {
    secret: key.secret,
    stream: false,
    maxTokens: 4,
    standin: {},
    plannedMs: 0,
    leaveMs: null,
    idempotencyKey: null,
    name,
    ...more,
  };
}

/** So many tokens in so many milliseconds, streamed. */
export function streamFor(key: InferenceKey, name: string, tokens: number, ms: number): Ask {
  const paceMs = Math.max(1, Math.round(ms / tokens));
  const standin = { tpot_ms: paceMs };
  return askFor(key, name, { stream: true, maxTokens: tokens, standin, plannedMs: paceMs * tokens });
}

/** A JSON request whose answer comes after so many milliseconds. */
export function jsonFor(key: InferenceKey, name: string, tokens: number, ms: number): Ask {
  return askFor(key, name, { maxTokens: tokens, standin: { ttft_ms: ms }, plannedMs: ms });
}

export interface Load {
  readonly workload: Workload;
  readonly keys: readonly InferenceKey[];
}

export interface LoadOptions extends Partial<Omit<WorkloadOptions, 'keys' | 'seed'>> {
  readonly organizations?: number;
  readonly keysEach?: number;
}

const warmName = 'warm';
const warmMsMax = 60_000;

/** Opens organizations with keys, has every gateway see every key, and starts the load. */
export async function startLoad(stage: Stage, scene: Scene, options: LoadOptions = {}): Promise<Load> {
  const { organizations = 3, keysEach = 2, clients = 8, ...rest } = options;
  const keys = await openKeys(scene, { organizations, keysEach });
  await warm(scene, keys);
  const workload = startWorkload({ seed: stage.seed, clients, keys, where: () => scene.where(), ...rest });
  return { workload, keys };
}

/** Opens organizations of 10 USD with keys without limits. */
export async function openKeys(
  scene: Scene,
  { organizations, keysEach }: Required<Pick<LoadOptions, 'organizations' | 'keysEach'>>,
): Promise<InferenceKey[]> {
  const keys: InferenceKey[] = [];
  for (let number = 0; number < organizations; number += 1) {
    const organization = await scene.organization('10');
    for (let key = 0; key < keysEach; key += 1) keys.push(await scene.keyOf(organization));
  }
  return keys;
}

/** Every gateway serves every key once. @throws Error when one does not, on whatever machine */
export async function warm(scene: Scene, keys: readonly InferenceKey[]): Promise<void> {
  for (const where of scene.where()) {
    for (const key of keys) {
      const seen: Seen[] = [];
      const served = await within(warmMsMax, async () => {
        seen.push(await askOnce(where, askFor(key, warmName)));
        return seen.at(-1)?.complete === true;
      });
      if (served === null) throw new Error(`the row cannot begin: ${namesOf(seen)}`);
    }
  }
}

const probeEveryMs = 100;

/** How long until every gateway that lives answers again; one that does not is reported as not holding. */
export async function recover(stage: Stage, scene: Scene, key: InferenceKey, limitSeconds: number): Promise<void> {
  const beganMs = performance.now();
  const limitMs = limitSeconds * 1000 * stage.slack;
  const seen: Seen[] = [];
  const recovered = async (where: Where): Promise<boolean> => {
    const found = await within(limitMs, async () => {
      const one = await askOnce(where, askFor(key, 'probe'));
      seen.push(one);
      if (!one.complete) await sleep(probeEveryMs);
      return one.complete;
    });
    const last = seen.findLast(({ gateway }) => gateway === where.gateway);
    const said = `${last?.status} ${last?.code ?? ''}`.trim();
    stage.must(found !== null, `gateway ${where.gateway} still answers ${said} after ${limitMs / 1000} s`);
    return found !== null;
  };
  const isBack = await Promise.all(scene.where().map(recovered));
  stage.saw(seen);
  if (isBack.every(Boolean)) stage.recovered(secondsSince(beganMs));
}

export interface ConcludeOptions {
  readonly keys: readonly InferenceKey[];
  readonly seen: readonly Seen[];
  /** How long holds may outlive what they were for, and records what was seen of them. */
  readonly settleSeconds?: number;
  /** True when the engine was killed: its counters begin anew then. */
  readonly engineDied?: boolean;
  /** Ids of records that the books had to refuse, as quarantine had them. */
  readonly refused?: ReadonlySet<string>;
}

/** The end of every row: nothing is held any more, and the three sets agree. */
export async function conclude(stage: Stage, scene: Scene, options: ConcludeOptions): Promise<Findings> {
  const { keys, settleSeconds = 15 } = options;
  const settleMs = settleSeconds * 1000 * stage.slack;
  await untilNothingIsHeld(stage, scene, keys, settleMs);
  const findings = await compare(scene, options, settleMs);
  stage.counted(findings.figures);
  for (const problem of findings.problems) stage.must(false, problem);
  if (options.engineDied !== true) await compareCounters(stage, scene);
  return findings;
}

/** Waits until the wallets of the keys hold nothing. A wallet that still holds something then fails the row. */
export async function untilNothingIsHeld(
  stage: Stage,
  scene: Scene,
  keys: readonly InferenceKey[],
  settleMs: number,
): Promise<void> {
  const organizations = new Map(keys.map(({ organization }) => [organization.id, organization]));
  for (const organization of organizations.values()) {
    const { managementKey: key } = organization;
    let held = '';
    const free = await within(settleMs, async () => {
      const answer = await callApi(scene.where()[0]?.url ?? '', '/v1/wallet', { key });
      held = answer.status === 200 ? `$${answer.body.held}` : `${answer.status} ${answer.body?.error?.code}`;
      return answer.status === 200 && answer.body.held === '0';
    });
    stage.must(free !== null, `a wallet still holds ${held} after ${settleMs / 1000} s`);
  }
}

/** Until the books have what is on its way to them. */
async function compare(scene: Scene, { seen, refused }: ConcludeOptions, settleMs: number): Promise<Findings> {
  const ends = scene.gateways.flatMap((gateway) => gateway.ends);
  const look = async (): Promise<Findings> =>
    check({
      seen,
      books: await scene.books(),
      counted: scene.counted(),
      ends,
      ...(refused !== undefined && { refused }),
    });
  const agreed = await within(settleMs, async () => {
    const findings = await look();
    return findings.problems.length === 0 ? findings : null;
  });
  return agreed ?? look();
}

/** Compares vLLM's counters with its tokens. */
async function compareCounters(stage: Stage, scene: Scene): Promise<void> {
  const { promptTokens, outputTokens } = await scene.engine.counters();
  const counted = [...scene.counted().values()];
  const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0);
  const isSame =
    promptTokens === sum(counted.map((one) => one.promptTokens)) &&
    outputTokens === sum(counted.map((one) => one.outputTokens));
  stage.must(isSame, `the engine's counters are not its tokens: ${promptTokens} and ${outputTokens}`);
}

/** Requests that ran between two moments, whenever they began. */
export function between(seen: readonly Seen[], fromMs: number, toMs: number): Seen[] {
  return seen.filter(({ beganMs, endedMs }) => endedMs >= fromMs && beganMs < toMs);
}

/** Answers that a valid key with money and within its limits must not get. */
export function refused(seen: readonly Seen[]): Seen[] {
  return seen.filter(({ complete, hasLeft }) => !complete && !hasLeft);
}

/** "503 billing_unavailable × 3, no answer × 1", and an example of what was cut off without a word. */
export function namesOf(seen: readonly Seen[]): string {
  const counts = new Map<string, number>();
  for (const { status, code, complete } of seen) {
    const how = complete ? 'complete' : (code ?? 'cut');
    const name = status === 0 ? 'no answer' : `${status} ${how}`;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  const cut = seen.find(({ complete, code, status }) => status !== 0 && !complete && code === null);
  const example = cut === undefined ? '' : ` (${cut.id})`;
  return `${[...counts].map(([name, count]) => `${name} × ${count}`).join(', ')}${example}`;
}

/** No valid key is rejected as an unknown one. */
export function mustKnowKeys(stage: Stage, seen: readonly Seen[]): void {
  const unknown = seen.filter(({ status }) => status === 401);
  stage.must(unknown.length === 0, `${unknown.length} requests of valid keys got 401`);
}

/** No request was let in that its wallet could not pay. */
export function mustWriteNothingOff(stage: Stage, usage: readonly { readonly writtenOff: bigint }[]): void {
  const off = usage.reduce((sum, row) => sum + row.writtenOff, 0n);
  stage.must(off === 0n, `$${(Number(off) / 1e12).toFixed(6)} was written off with money in the wallet`);
}
