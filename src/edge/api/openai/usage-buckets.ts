import type { Clock } from '#base/clock.ts';
import { AppError } from '#base/errors.ts';
import { formatId, parseId } from '#base/id.ts';
import type { History, SummaryDimension, SummaryRow } from '#core/metering/metering.ts';
import { ValidationError } from '#edge/http/http.ts';

/** Sums of usage in buckets of time, in pages. */

const hourSeconds = 3600;
const widthSeconds = { '1h': hourSeconds, '1d': 24 * hourSeconds } as const;
/** Most groups of a page: enough for 100 keys with 6 models on each day of a month. */
const groupsMax = 20_000;

export type BucketWidth = keyof typeof widthSeconds;

export interface BucketsAsked {
  readonly organizationId: string;
  /** Seconds since the Unix epoch; `startTime` is inclusive, `endTime` exclusive. */
  readonly startTime: number;
  readonly endTime: number;
  readonly width: BucketWidth;
  readonly limit: { readonly asked: number | undefined; readonly byDefault: number; readonly most: number };
  /** `next_page` of the previous page. */
  readonly page: string | undefined;
  readonly groupBy: readonly GroupDimension[];
  /** Users by the keys that act for them, as UUIDs; empty unless grouped or filtered by user. */
  readonly users: ReadonlyMap<string, string>;
  /** Ids in the form of the API; absent if all are wanted. */
  readonly only: Readonly<Partial<Record<SharedDimension, readonly string[] | undefined>>>;
  /** Returns true if a model is included; null if all are. */
  readonly counts: ((model: string) => boolean) | null;
}

export type SharedDimension = Exclude<SummaryDimension, 'day' | 'hour'>;
/** Dimension of a group. A user's usage is that of the keys that act for the user. */
export type GroupDimension = SharedDimension | 'user_id';

/** Admitted usage of one bucket and one group. */
export interface BucketSums {
  /** Null for a dimension that is not grouped by. */
  readonly group: Readonly<Record<GroupDimension, string | null>>;
  requests: number;
  inputTokens: number;
  inputCachedTokens: number;
  outputTokens: number;
  costPicoUsd: bigint;
}

/** Returns the span's end: by default the end of this second, as for `/v1/usage/summary`. @throws ValidationError */
export function endTimeOf(
  { start_time: startTime, end_time: endTime }: { readonly start_time: number; readonly end_time?: number | undefined },
  clock: Pick<Clock, 'now'>,
): number {
  const now = Math.floor(clock.now() / 1000) + 1;
  if (endTime === undefined && startTime >= now) throw problem('start_time', 'is in the future: send end_time, too');
  return endTime ?? now;
}

interface Bucket<Result> {
  object: 'bucket';
  start_time: number;
  end_time: number;
  results: Result[];
}

export interface BucketPage<Result> {
  object: 'page';
  data: Bucket<Result>[];
  has_more: boolean;
  next_page: string | null;
}

/**
 * Reads one page. The first bucket begins at `startTime` and the last ends at `endTime`; the others begin and end at
 * whole days or hours of UTC. Buckets without usage are included.
 * @throws ValidationError
 * @throws AppError invalid_request_error if there are too many groups
 */
export async function readBuckets<Result>(
  history: Pick<History, 'summarize'>,
  asked: BucketsAsked,
  toResult: (sums: BucketSums) => Result,
): Promise<BucketPage<Result>> {
  const starts = startsOf(asked);
  const [first = asked.startTime] = starts;
  const width = widthSeconds[asked.width];
  const endOf = (start: number): number => Math.min(asked.endTime, floorTo(start, width) + width);
  const end = endOf(starts.at(-1) ?? first);
  const groups = new Map(starts.map((start) => [floorTo(start, width), new Map<string, BucketSums>()]));
  for (const row of await readRows(history, asked, first, end)) {
    const bucket = groups.get(momentOf(row));
    if (bucket !== undefined) addTo(bucket, row, asked);
  }
  const data = starts.map((start) => ({
    object: 'bucket' as const,
    start_time: start,
    end_time: endOf(start),
    results: [...(groups.get(floorTo(start, width))?.values() ?? [])].map(toResult),
  }));
  const more = end < asked.endTime;
  return { object: 'page', data, has_more: more, next_page: more ? `page_${end}` : null };
}

const floorTo = (second: number, width: number): number => second - (second % width);

function startsOf({ startTime, endTime, width: name, limit, page }: BucketsAsked): number[] {
  if (endTime <= startTime) throw problem('end_time', 'must be after start_time');
  const most = limit.asked ?? limit.byDefault;
  if (most > limit.most) throw problem('limit', `must be at most ${limit.most} with a bucket_width of ${name}`);
  const width = widthSeconds[name];
  const first = page === undefined ? startTime : Number(page.slice('page_'.length));
  const isOfList = first === startTime || (first % width === 0 && first > startTime && first < endTime);
  if (!isOfList) throw problem('page', 'is not a next_page of this list');
  const starts = [first];
  for (let next = floorTo(first, width) + width; next < endTime && starts.length < most; next += width) {
    starts.push(next);
  }
  return starts;
}

/** Returns the filters in the form of the usage store: ids as UUIDs, without values that no row can have. */
function pickedOf({ only }: BucketsAsked) {
  const ids = (prefix: 'key' | 'proj', texts: readonly string[] | undefined) =>
    texts?.flatMap((text) => parseId(prefix, text) ?? []);
  return {
    key_id: ids('key', only.key_id),
    project_id: ids('proj', only.project_id),
    // PostgreSQL rejects texts with a NUL.
    model: only.model?.filter((name) => !name.includes('\0')),
  };
}

async function readRows(history: Pick<History, 'summarize'>, asked: BucketsAsked, from: number, to: number) {
  const { organizationId, groupBy, counts } = asked;
  const dimensions = (['project_id', 'key_id', 'model'] as const).filter(
    (dimension) =>
      groupBy.includes(dimension) ||
      (dimension === 'model' && counts !== null) ||
      (dimension === 'key_id' && groupBy.includes('user_id')),
  );
  const summary = await history.summarize({
    organizationId,
    keyId: null,
    only: pickedOf(asked),
    fromMs: from * 1000,
    toMs: to * 1000,
    groupBy: [...dimensions, asked.width === '1d' ? 'day' : 'hour'],
    groupsMax,
  });
  if (summary.kind === 'too_many_groups') {
    const message = `These buckets have more than ${groupsMax} groups. Lower "limit", or group by fewer fields.`;
    throw new AppError('invalid_request_error', { message, param: 'limit' });
  }
  if (summary.kind === 'before_retention') {
    const kept = new Date(summary.keptFromMs).toISOString();
    const message = `must be a whole hour: before ${kept}, only hourly sums are kept`;
    throw problem(from % hourSeconds === 0 ? 'end_time' : 'start_time', message);
  }
  return summary.rows.filter((row) => row.requests > 0 && (counts?.(String(row.group.model)) ?? true));
}

const problem = (field: string, message: string): ValidationError => new ValidationError([{ field, message }]);

function shownOf(group: SummaryRow['group'], dimension: SharedDimension): string {
  const value = String(group[dimension]);
  if (dimension === 'model') return value;
  return formatId(dimension === 'key_id' ? 'key' : 'proj', value);
}

const momentOf = ({ group: { day, hour } }: SummaryRow): number =>
  day === undefined ? Number(hour) : Date.parse(`${day}T00:00:00Z`) / 1000;

function addTo(
  bucket: Map<string, BucketSums>,
  row: SummaryRow,
  { groupBy, users }: Pick<BucketsAsked, 'groupBy' | 'users'>,
): void {
  const of = (dimension: SharedDimension) => (groupBy.includes(dimension) ? shownOf(row.group, dimension) : null);
  const user = groupBy.includes('user_id') ? users.get(String(row.group.key_id)) : undefined;
  const group = {
    project_id: of('project_id'),
    key_id: of('key_id'),
    model: of('model'),
    user_id: user === undefined ? null : formatId('user', user),
  };
  const name = JSON.stringify(group);
  const sums = bucket.get(name) ?? { group, ...noSums };
  sums.requests += row.requests;
  sums.inputTokens += row.inputTokens;
  sums.inputCachedTokens += row.inputCachedTokens;
  sums.outputTokens += row.outputTokens;
  sums.costPicoUsd += row.costPicoUsd;
  bucket.set(name, sums);
}

const noSums = { requests: 0, inputTokens: 0, inputCachedTokens: 0, outputTokens: 0, costPicoUsd: 0n };
