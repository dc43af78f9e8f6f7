import { z } from 'zod';
import { ConfigError } from '#base/config-error.ts';
import { connectDb, describeConnectionFailure, isUnknownSchema } from '#base/database/database.ts';

/** The tables of LiteLLM's database that are read: schema.prisma of https://github.com/BerriAI/litellm. */

/** PostgreSQL's JSON has bigint and double precision as numbers, and infinity and NaN as text. */
const number = z.union([z.number(), z.string()]).nullable().default(null);
const text = z.string().nullable().default(null);
const texts = z
  .array(z.string().nullable())
  // Kept as an empty name: a list without its names would allow everything.
  .transform((all) => all.map((one) => one ?? ''))
  .nullable()
  .default(null);

const money = { max_budget: number, budget_duration: text, budget_reset_at: text };

const keyRow = z.looseObject({
  token: z.string(),
  key_name: text,
  key_alias: text,
  spend: number,
  expires: text,
  models: texts,
  team_id: text,
  budget_id: text,
  blocked: z.boolean().nullable().default(null),
  allowed_routes: texts,
  rpm_limit: number,
  tpm_limit: number,
  max_parallel_requests: number,
  ...money,
});
export type LitellmKey = z.output<typeof keyRow>;

const teamRow = z.looseObject({
  team_id: z.string(),
  team_alias: text,
  spend: number,
  models: texts,
  blocked: z.boolean().nullable().default(null),
  ...money,
});
export type LitellmTeam = z.output<typeof teamRow>;

const tierRow = z.looseObject({ budget_id: z.string(), rpm_limit: number, tpm_limit: number, ...money });
/** A budget that several keys refer to. */
export type LitellmTier = z.output<typeof tierRow>;

/** Tables that are counted only: Headgate has no place for their rows. */
const countedTables = [
  'LiteLLM_OrganizationTable',
  'LiteLLM_ProjectTable',
  'LiteLLM_UserTable',
  'LiteLLM_EndUserTable',
  'LiteLLM_TeamMembership',
  'LiteLLM_TagTable',
  'LiteLLM_DeprecatedVerificationToken',
  'LiteLLM_JWTKeyMapping',
] as const;

export interface LitellmData {
  readonly keys: readonly LitellmKey[];
  readonly teams: readonly LitellmTeam[];
  readonly tiers: readonly LitellmTier[];
  /** Rows by table; an older LiteLLM does not have every table. */
  readonly counts: Readonly<Partial<Record<(typeof countedTables)[number], number>>>;
}

/** Parameters of Prisma, which LiteLLM connects with; PostgreSQL rejects them. */
const prismaParameters = [
  'connect_timeout',
  'connection_limit',
  'pgbouncer',
  'pool_timeout',
  'socket_timeout',
  'sslaccept',
  'statement_cache_size',
];

/** True if every % in a URL begins an encoded character other than NUL. */
function isEncoded(url: string): boolean {
  try {
    return !decodeURIComponent(url).includes('\0');
  } catch {
    return false;
  }
}

/** Returns the URL without Prisma's parameters, and the schema that holds the tables. @throws ConfigError */
function placeOf(given: string): { readonly url: string; readonly schema: string } {
  const url = URL.parse(given);
  if (url === null || !/^postgres(ql)?:$/.test(url.protocol)) {
    throw new ConfigError("LiteLLM's database must be a URL such as postgres://user:password@host:5432/litellm");
  }
  const schema = url.searchParams.get('schema') ?? 'public';
  if (!isEncoded(given)) {
    throw new ConfigError("LiteLLM's database: write % in the URL as %25; the URL must not contain %00");
  }
  for (const name of ['schema', ...prismaParameters]) url.searchParams.delete(name);
  return { url: url.href, schema };
}

const statementTimeoutMs = 300_000;
const limits = { lockTimeoutMs: 5000, statementTimeoutMs, idleInTransactionTimeoutMs: statementTimeoutMs };

/** Reads one moment of LiteLLM's database, and changes nothing. @throws ConfigError */
export async function readLitellmDatabase(given: string): Promise<LitellmData> {
  const { url, schema } = placeOf(given);
  const db = connectDb(url, { poolMax: 1, purpose: 'import', limits });
  try {
    return await db.sql.begin('isolation level repeatable read read only', async (sql) => {
      const tableOf = (name: string) => sql`${sql(schema)}.${sql(name)}`;
      const rowsOf = async <T extends z.ZodType>(name: string, key: string, schemaOf: T): Promise<z.output<T>[]> => {
        const rows = await sql<{ row: unknown }[]>`
          select to_jsonb(t) as row from ${tableOf(name)} t order by ${sql(key)}`;
        return rows.map(({ row }) => parseRow(name, schemaOf, row));
      };
      const known = await sql<{ name: string }[]>`
        select table_name as name from information_schema.tables where table_schema = ${schema}`;
      const counts: Partial<Record<string, number>> = {};
      for (const name of countedTables.filter((table) => known.some((one) => one.name === table))) {
        const [row] = await sql<{ rows: number }[]>`select count(*)::int as rows from ${tableOf(name)}`;
        counts[name] = row?.rows ?? 0;
      }
      return {
        keys: await rowsOf('LiteLLM_VerificationToken', 'token', keyRow),
        teams: await rowsOf('LiteLLM_TeamTable', 'team_id', teamRow),
        tiers: await rowsOf('LiteLLM_BudgetTable', 'budget_id', tierRow),
        counts,
      };
    });
  } catch (error) {
    if (isUnknownSchema(error))
      throw new ConfigError(
        `LiteLLM's database: the schema ${schema} has no tables of LiteLLM. Name the database of DATABASE_URL in LiteLLM's settings`,
        error,
      );
    const reason = describeConnectionFailure(error);
    if (reason === null) throw error;
    throw new ConfigError(
      `LiteLLM's database cannot be read (${reason}). Check address, password and network; PGPASSWORD may hold the password`,
      error,
    );
  } finally {
    await db.close();
  }
}

function parseRow<T extends z.ZodType>(table: string, schema: T, row: unknown): z.output<T> {
  const parsed = schema.safeParse(row);
  if (parsed.success) return parsed.data;
  const path = parsed.error.issues[0]?.path.join('.') ?? '';
  throw new ConfigError(`LiteLLM's database: ${table}.${path} has a type that this version of Headgate does not know`);
}
