import type { ISql, Sql } from 'postgres';
import type { Db } from '#base/database/database.ts';
import { type KnownIds, nobodyKnown } from './verify-names.ts';

/**
 * Gives codes to ids and names. The tables of usage store codes instead, four bytes each. Statements look codes up by
 * id and name themselves and cache none, since a restored database may give a code to something else.
 */
export interface Codes {
  /**
   * Gives a code to everything in the rows that has none. Queries the database only for values not seen before.
   * @throws UnknownOwnerError, and the driver's error
   */
  ensure(rows: readonly CodedRow[]): Promise<void>;
  /** Forgets all values seen: the database may have lost them. */
  forget(): void;
}

export interface Owner {
  readonly organizationId: string;
  readonly projectId: string;
  readonly keyId: string;
}

/** The ids and names of one row of usage. */
export interface CodedRow extends Owner {
  readonly priceVersionId: string;
  readonly model: string;
  readonly endpoint: string;
  /** The requested model, if a fallback answered. */
  readonly fallbackFor?: string;
}

/**
 * A key or project that does not exist in its organization now: it was created in a transaction that PostgreSQL has
 * lost. Usage under its id would belong to nobody.
 */
export class UnknownOwnerError extends Error {
  constructor({ organizationId, projectId, keyId }: Owner) {
    super(
      `organization ${organizationId} has no key ${keyId}, or no project ${projectId}: PostgreSQL may have lost it`,
    );
    this.name = 'UnknownOwnerError';
  }
}

/** Maximum number of remembered values of each kind; others are looked up again. */
const seenMax = 100_000;

/** @param known ids that usage may be stored for; absent: ids are not checked */
export function createCodes(db: Pick<Db, 'sql'>, known: KnownIds = nobodyKnown): Codes {
  const ids = new CodeTable(db, idTable);
  const names = new CodeTable(db, nameTable);
  return {
    async ensure(rows) {
      const unseenIds = new Set<string>();
      const unseenNames = new Set<string>();
      for (const row of rows) {
        ids.noteUnseen(row.organizationId, unseenIds);
        ids.noteUnseen(row.projectId, unseenIds);
        ids.noteUnseen(row.keyId, unseenIds);
        ids.noteUnseen(row.priceVersionId, unseenIds);
        names.noteUnseen(row.model, unseenNames);
        names.noteUnseen(row.endpoint, unseenNames);
        if (row.fallbackFor !== undefined) names.noteUnseen(row.fallbackFor, unseenNames);
      }
      if (unseenIds.size > 0) await addIds(rows, unseenIds);
      if (unseenNames.size > 0) await names.add(await names.missing(unseenNames));
    },
    forget() {
      ids.forget();
      names.forget();
    },
  };

  async function addIds(rows: readonly CodedRow[], unseen: ReadonlySet<string>): Promise<void> {
    const missing = await ids.missing(unseen);
    const made = rows.filter(({ projectId, keyId }) => missing.includes(projectId) || missing.includes(keyId));
    if (made.length > 0) await requireOwners(db, known, made);
    await ids.add(missing);
  }
}

/** SQL statements of one table: $1 is a JSON array of values. */
interface TableTexts {
  readonly find: string;
  readonly add: string;
}

const idTable: TableTexts = {
  find: `select id::text as value from usage_ids
    where id = any(array(select json_array_elements_text($1::text::json)::uuid))`,
  add: `insert into usage_ids (id) select json_array_elements_text($1::text::json)::uuid as id order by id
    on conflict (id) do nothing`,
};

const nameTable: TableTexts = {
  find: `select name as value from usage_names
    where name = any(array(select json_array_elements_text($1::text::json)))`,
  add: `insert into usage_names (name) select json_array_elements_text($1::text::json) as name order by name
    on conflict (name) do nothing`,
};

class CodeTable {
  readonly #db: Pick<Db, 'sql'>;
  readonly #texts: TableTexts;
  #seen = new Set<string>();

  constructor(db: Pick<Db, 'sql'>, texts: TableTexts) {
    this.#db = db;
    this.#texts = texts;
  }

  forget(): void {
    this.#seen = new Set();
  }

  /** Adds a value to `unseen`, unless it has a code already. */
  noteUnseen(value: string, unseen: Set<string>): void {
    if (!this.#seen.has(value)) unseen.add(value);
  }

  /**
   * Returns the values without a code. They are looked up before they are added, since a conflict would use up a code.
   */
  async missing(unseen: ReadonlySet<string>): Promise<readonly string[]> {
    const asked = [...unseen];
    const found = await this.#db.sql.unsafe<{ value: string }[]>(this.#texts.find, [JSON.stringify(asked)]);
    if (this.#seen.size > seenMax) this.#seen = new Set();
    for (const { value } of found) this.#seen.add(value);
    return asked.filter((value) => !this.#seen.has(value));
  }

  async add(values: readonly string[]): Promise<void> {
    if (values.length === 0) return;
    await this.#db.sql.unsafe(this.#texts.add, [JSON.stringify(values)]);
    for (const value of values) this.#seen.add(value);
  }
}

/**
 * Checks that keys and projects exist in their organizations. An unknown organization is not checked. @throws
 * UnknownOwnerError
 */
async function requireOwners({ sql }: Pick<Db, 'sql'>, known: KnownIds, owners: readonly Owner[]): Promise<void> {
  const [unknown] = await sql.unsafe<Owner[]>(
    `select "organizationId"::text, "projectId"::text, "keyId"::text
    from json_to_recordset($1::text::json) as o("organizationId" uuid, "projectId" uuid, "keyId" uuid)
    where exists (select from (${known.organizations}) n where n.id = o."organizationId") and not (
      exists (select from (${known.keys}) k where k.id = o."keyId" and k.organization_id = o."organizationId") and
      exists (select from (${known.projects}) p where p.id = o."projectId" and p.organization_id = o."organizationId"))
    limit 1`,
    [JSON.stringify(owners.map(({ organizationId, projectId, keyId }) => ({ organizationId, projectId, keyId })))],
  );
  if (unknown !== undefined) throw new UnknownOwnerError(unknown);
}

/** Returns SQL for the code of an id; null, which equals nothing, if no usage was ever stored for it. */
export function idCodeSql(sql: ISql, id: string | null) {
  return sql`(select code from usage_ids where id = ${id})`;
}

/** Returns SQL for the set of codes of those ids that usage was ever stored for. */
export function idCodesSql(sql: Sql, ids: readonly string[]) {
  return sql`(select code from usage_ids where id in (${valuesSql(sql, ids)}))`;
}

/** Returns a query of UUIDs. */
export function valuesSql(sql: Sql, ids: readonly string[]) {
  return sql`select value::uuid from json_array_elements_text(${JSON.stringify(ids)}::text::json)`;
}

/** Returns SQL for the code of a name. */
export function nameCodeSql(sql: Sql, name: string | null) {
  return sql`(select code from usage_names where name = ${name})`;
}

/** Returns SQL for the set of codes of names. */
export function nameCodesSql(sql: Sql, names: readonly string[]) {
  return sql`(select code from usage_names where name in (${textsSql(sql, names)}))`;
}

/** Returns a query of texts. */
export function textsSql(sql: Sql, texts: readonly string[]) {
  return sql`select value from json_array_elements_text(${JSON.stringify(texts)}::text::json)`;
}
