import type { Db } from '#base/database/database.ts';
import { idCodeSql } from '#core/metering/tables/tables.ts';

/**
 * A project, key or user, and the time in which its requests were accepted: from `fromMs` until before `toMs`, starts
 * of UTC days.
 */
export interface SpendingSpan {
  readonly type: 'project' | 'api_key' | 'user';
  /** A UUID, or the end user as requests name them. */
  readonly id: string;
  /** Only spending on these models, by their public names; null or absent for all models. */
  readonly models?: readonly string[] | null;
  /** Milliseconds since the Unix epoch. */
  readonly fromMs: number;
  readonly toMs: number;
}

export interface SpentOf {
  readonly picoUsd: bigint;
  /** The given requests that are included. */
  readonly counted: readonly string[];
}

export interface UserSpending {
  readonly user: string;
  readonly picoUsd: bigint;
}

export interface UsersSpan {
  /** Only spending on these models; null or absent for all models. */
  readonly models?: readonly string[] | null;
  readonly fromMs: number;
  readonly toMs: number;
  readonly leastPicoUsd: bigint;
}

/** Spending that budgets count, from the database. */
export interface SpendingReports {
  /** Returns the spending, and which of the requests are included, in one snapshot. */
  spentWith(organizationId: string, span: SpendingSpan, requestIds: readonly string[]): Promise<SpentOf>;
  /** Returns the spending of each span in pico-dollars, in the order of `spans`. */
  spentOf(organizationId: string, spans: readonly SpendingSpan[]): Promise<readonly bigint[]>;
  /** Returns the counted end users who have spent at least `leastPicoUsd`, by descending spending, at most `limit`. */
  usersWith(organizationId: string, span: UsersSpan & { readonly limit: number }): Promise<readonly UserSpending[]>;
  /** Returns the number of these end users. */
  countUsersWith(organizationId: string, span: UsersSpan): Promise<number>;
  /**
   * Deletes the spending of end users on days before the day of `beforeMs`, in milliseconds since the Unix epoch.
   * @param keptFrom organizations whose spending is kept from an earlier day, with that day
   */
  forgetUsers(beforeMs: number, keptFrom?: ReadonlyMap<string, number>): Promise<void>;
}

const dayOf = (ms: number): string => new Date(ms).toISOString().slice(0, 10);

export function createSpendingReports({ sql }: Pick<Db, 'sql'>): SpendingReports {
  return {
    async spentWith(organizationId, span, requestIds) {
      const [row] = await sql<{ spent: string; counted: string }[]>`
        select ${spentSql(sql, organizationId, span)}::text as spent,
          coalesce((select string_agg(id::text, ' ') from usage_requests
            where organization = ${idCodeSql(sql, organizationId)} and id = any(${`{${requestIds.join(',')}}`}::uuid[])), '')
            as counted`;
      const counted = row === undefined || row.counted === '' ? [] : row.counted.split(' ');
      return { picoUsd: BigInt(row?.spent ?? '0'), counted };
    },
    spentOf: (organizationId, spans) => readSpent(sql, organizationId, spans),
    async usersWith(organizationId, { limit, ...span }) {
      const rows = await sql<{ user: string; spent: string }[]>`
        select end_user as user, spent::text from (${usersSql(sql, organizationId, span)}) users
        order by users.spent desc, end_user limit ${limit}`;
      return rows.map(({ user, spent }) => ({ user, picoUsd: BigInt(spent) }));
    },
    async countUsersWith(organizationId, span) {
      const [row] = await sql<{ users: number }[]>`
        select count(*)::int as users from (${usersSql(sql, organizationId, span)}) users`;
      return row?.users ?? 0;
    },
    async forgetUsers(beforeMs, keptFrom = new Map()) {
      const kept = [...keptFrom].map(([id, fromMs]) => ({ id, from: dayOf(fromMs) }));
      for (const users of ['usage_users', 'usage_user_models']) {
        await sql`
          delete from ${sql(users)} u where day < ${dayOf(beforeMs)}::date and not exists (
            select 1 from json_to_recordset(${JSON.stringify(kept)}::text::json) as k(id uuid, "from" date)
              join usage_ids i on i.id = k.id where i.code = u.organization and u.day >= k.from)`;
      }
    },
  };
}

async function readSpent(
  sql: Db['sql'],
  organizationId: string,
  spans: readonly SpendingSpan[],
): Promise<readonly bigint[]> {
  if (spans.length === 0) return [];
  const asked = spans.map(({ type, id, models = null, fromMs, toMs }, n) => ({
    n,
    type: type === 'user' && models !== null ? 'user_models' : type,
    id: type === 'user' ? null : id,
    end_user: type === 'user' ? id : null,
    models,
    from: dayOf(fromMs),
    to: dayOf(toMs),
  }));
  const organization = idCodeSql(sql, organizationId);
  const first = dayOf(Math.min(...spans.map(({ fromMs }) => fromMs)));
  const end = dayOf(Math.max(...spans.map(({ toMs }) => toMs)));
  // Each type is one join by equality: a thousand budgets read the days once, not a thousand times.
  const days = sql`s.organization = ${organization} and s.day >= ${first}::date and s.day < ${end}::date
    and s.day >= a.from and s.day < a.to`;
  const ofModels = sql`(a.models is null or s.model = any(a.codes))`;
  const rows = await sql<{ n: number; spent: string }[]>`
    with asked as (
      select t.n, t.type, t.end_user, t.models, t.from, t.to, i.code,
        array(select code from usage_names where name = any(t.models)) as codes
      from json_to_recordset(${JSON.stringify(asked)}::text::json)
          as t(n integer, type text, id uuid, end_user text, models text[], "from" date, "to" date)
        left join usage_ids i on i.id = t.id
    )
    select n, sum(cost)::text as spent from (
      select a.n, s.cost from asked a join usage_daily s on s.key = a.code and ${days} and ${ofModels}
        where a.type = 'api_key'
      union all
      select a.n, s.cost from asked a join usage_daily s on s.project = a.code and ${days} and ${ofModels}
        where a.type = 'project'
      union all
      select a.n, s.cost from asked a join usage_users s on s.end_user = a.end_user and ${days} where a.type = 'user'
      union all
      select a.n, s.cost from asked a join usage_user_models s on s.end_user = a.end_user and ${days} and ${ofModels}
        where a.type = 'user_models'
    ) found group by n`;
  const found = new Map(rows.map(({ n, spent }) => [n, BigInt(spent)]));
  return spans.map((_, n) => found.get(n) ?? 0n);
}

function usersSql(sql: Db['sql'], organizationId: string, { models = null, fromMs, toMs, leastPicoUsd }: UsersSpan) {
  return sql`select end_user, sum(cost) as spent from ${sql(models === null ? 'usage_users' : 'usage_user_models')}
    where ${modelsSql(sql, models)} and organization = ${idCodeSql(sql, organizationId)} and day >= ${dayOf(fromMs)}::date and day < ${dayOf(toMs)}::date
    group by end_user having sum(cost) >= ${leastPicoUsd.toString()}::numeric`;
}

function modelsSql(sql: Db['sql'], models: readonly string[] | null) {
  if (models === null) return sql`true`;
  return sql`model in (select code from usage_names
    where name in (select json_array_elements_text(${JSON.stringify(models)}::text::json)))`;
}

function spentSql(sql: Db['sql'], organizationId: string, { type, id, models = null, fromMs, toMs }: SpendingSpan) {
  const organization = idCodeSql(sql, organizationId);
  const days = sql`${modelsSql(sql, models)} and day >= ${dayOf(fromMs)}::date and day < ${dayOf(toMs)}::date`;
  if (type === 'user') {
    return sql`(select coalesce(sum(cost), 0) from ${sql(models === null ? 'usage_users' : 'usage_user_models')}
      where organization = ${organization} and end_user = ${id} and ${days})`;
  }
  const owner = sql(type === 'api_key' ? 'key' : 'project');
  return sql`(select coalesce(sum(cost), 0) from usage_daily
    where organization = ${organization} and ${days} and ${owner} = ${idCodeSql(sql, id)})`;
}
