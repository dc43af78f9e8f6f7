import { uuidLowerBound } from '#base/id.ts';

/** The plan of a seeded history: who asks for which model, and how much in which hour. */

/** One key's use of one model. */
export interface Series {
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string;
  readonly model: string;
  readonly endpoint: string;
  readonly priceVersionId: string;
  /** Pico-dollars per token. */
  readonly inputPrice: number;
  readonly outputPrice: number;
  /** Its part of all requests; all together are 1. */
  readonly share: number;
}

export interface HourPlan {
  readonly startMs: number;
  /** Requests before this hour. */
  readonly first: number;
  readonly requests: number;
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
export type Random = () => number;

export function createRandom(seed: number): Random {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

const models = [
  {
    model: 'meta-llama/Llama-3.3-70B-Instruct',
    endpoint: '/v1/chat/completions',
    inputPrice: 200_000,
    outputPrice: 600_000,
  },
  { model: 'qwen3-32b', endpoint: '/v1/chat/completions', inputPrice: 100_000, outputPrice: 300_000 },
  { model: 'gpt-oss-120b', endpoint: '/v1/chat/completions', inputPrice: 150_000, outputPrice: 450_000 },
  { model: 'bge-m3', endpoint: '/v1/embeddings', inputPrice: 10_000, outputPrice: 0 },
  { model: 'qwen3-0.6b', endpoint: '/v1/completions', inputPrice: 20_000, outputPrice: 40_000 },
  // Hardly anybody asks for it: what filters on it matches next to nothing.
  { model: 'old-and-rare', endpoint: '/v1/chat/completions', inputPrice: 20_000, outputPrice: 40_000 },
];

const rareShare = 1 / 200_000;

/** An id whose time is that of `startMs`. */
function idOf(random: Random, startMs: number): string {
  const digits = Array.from({ length: 12 }, () => Math.floor(random() * 16).toString(16)).join('');
  return uuidLowerBound(startMs).slice(0, 24) + digits;
}

/** Shares that fall with the rank, as of organizations of any market: 1, 1/2, 1/3, … */
const byRank = (rank: number): number => 1 / (rank + 1);

/** Organizations of very different sizes, each with projects and keys, each key with one to three models. */
export function drawSeries(
  random: Random,
  { organizations, first, startMs }: { organizations: number; first: string | null; startMs: number },
): readonly Series[] {
  const prices = models.map(() => idOf(random, startMs));
  const drawn = Array.from({ length: organizations }, (_, rank) => {
    const organizationId = rank === 0 && first !== null ? first : idOf(random, startMs);
    const projects = Array.from({ length: 1 + Math.floor(random() * 4) }, () => idOf(random, startMs));
    const keys = 2 + Math.floor((random() * 40) / Math.sqrt(rank + 1));
    return Array.from({ length: keys }, (_key, keyRank) => {
      const keyId = idOf(random, startMs);
      const projectId = projects[Math.floor(random() * projects.length)] ?? organizationId;
      const chosen = models.slice(0, -1).map((_model, index) => index);
      chosen.sort(() => random() - 0.5);
      const used = chosen.slice(0, 1 + Math.floor(random() * 3));
      return used.map((index, at) => ({
        organizationId,
        projectId,
        keyId,
        index,
        weight: byRank(rank) * byRank(keyRank) * byRank(at * 2),
      }));
    }).flat();
  }).flat();
  const total = drawn.reduce((sum, { weight }) => sum + weight, 0);
  const common = drawn.map(({ index, weight, ...owner }) => toSeries(owner, index, prices, weight / total));
  const busiest = common[0];
  if (busiest === undefined) return [];
  return [toSeries(busiest, models.length - 1, prices, rareShare), ...common];
}

function toSeries(
  { organizationId, projectId, keyId }: Pick<Series, 'organizationId' | 'projectId' | 'keyId'>,
  index: number,
  prices: readonly string[],
  share: number,
): Series {
  const model = models[index] ?? { model: '', endpoint: '', inputPrice: 0, outputPrice: 0 };
  return { organizationId, projectId, keyId, ...model, priceVersionId: prices[index] ?? '', share };
}

const hourMs = 3_600_000;

/** More by day than by night, less on Saturdays and Sundays, three times as much at the end as at the beginning. */
export function spreadOverHours(
  random: Random,
  { rows, startMs, endMs }: { rows: number; startMs: number; endMs: number },
): readonly HourPlan[] {
  const hours = Array.from({ length: Math.round((endMs - startMs) / hourMs) }, (_, i) => startMs + i * hourMs);
  const weights = hours.map((timeMs, i) => {
    const date = new Date(timeMs);
    const byDay = date.getUTCDay() % 6 === 0 ? 0.4 : 1;
    const byHour = 1.1 - Math.cos(((date.getUTCHours() - 2) / 24) * 2 * Math.PI);
    return byDay * byHour * (1 + (2 * i) / hours.length) * (0.8 + 0.4 * random());
  });
  const total = weights.reduce((sum, weight) => sum + weight, 0);
  let before = 0;
  let first = 0;
  return hours.map((timeMs, i) => {
    before += weights[i] ?? 0;
    const last = i === hours.length - 1 ? rows : Math.floor((before / total) * rows);
    const plan = { startMs: timeMs, first, requests: last - first };
    first = last;
    return plan;
  });
}
