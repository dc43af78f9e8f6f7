import type { ISql, Sql } from 'postgres';
import type { Db } from '#base/db.ts';

/**
 * Codes that take the place of ids and names in the tables of usage, four bytes each. A code is never changed nor taken
 * back, so that whoever knows it need not ask again.
 */
export interface Codes {
  /**
   * Gives a code to everything that has none. Asks the database only for what it has not seen.
   * @throws the driver's error
   */
  of(wanted: Wanted): Promise<KnownCodes>;
}

export interface Wanted {
  /** Organizations, projects, keys, price versions. */
  readonly ids: readonly string[];
  /** Models, paths. */
  readonly names: readonly string[];
}

export interface KnownCodes {
  readonly ids: ReadonlyMap<string, number>;
  readonly names: ReadonlyMap<string, number>;
}

/** So many of each kind are kept in memory; more are asked for again. */
const knownMax = 100_000;

export function createCodes(db: Pick<Db, 'sql'>): Codes {
  const ids = new CodeTable(db, idTable);
  const names = new CodeTable(db, nameTable);
  return {
    of: async (wanted) => ({ ids: await ids.of(wanted.ids), names: await names.of(wanted.names) }),
  };
}

/** Texts of one table: $1 is a JSON array of values. */
interface TableTexts {
  readonly find: string;
  readonly add: string;
}

const idTable: TableTexts = {
  find: `select code, id::text as value from usage_ids
    where id = any(array(select json_array_elements_text($1::text::json)::uuid))`,
  add: `insert into usage_ids (id) select json_array_elements_text($1::text::json)::uuid as id order by id
    on conflict (id) do nothing`,
};

const nameTable: TableTexts = {
  find: `select code, name as value from usage_names
    where name = any(array(select json_array_elements_text($1::text::json)))`,
  add: `insert into usage_names (name) select json_array_elements_text($1::text::json) as name order by name
    on conflict (name) do nothing`,
};

class CodeTable {
  readonly #db: Pick<Db, 'sql'>;
  readonly #texts: TableTexts;
  readonly #known = new Map<string, number>();

  constructor(db: Pick<Db, 'sql'>, texts: TableTexts) {
    this.#db = db;
    this.#texts = texts;
  }

  async of(values: readonly string[]): Promise<ReadonlyMap<string, number>> {
    if (!values.some((value) => !this.#known.has(value))) return this.#known;
    if (this.#known.size > knownMax) this.#known.clear();
    const asked = [...new Set(values)];
    await this.#find(asked);
    // Looked for first: what is in conflict would use up a code.
    const missing = asked.filter((value) => !this.#known.has(value));
    if (missing.length > 0) {
      await this.#db.sql.unsafe(this.#texts.add, [JSON.stringify(missing)]);
      await this.#find(missing);
    }
    return this.#known;
  }

  async #find(values: readonly string[]): Promise<void> {
    const parameters = [JSON.stringify(values)];
    const rows = await this.#db.sql.unsafe<{ code: number; value: string }[]>(this.#texts.find, parameters);
    for (const { code, value } of rows) this.#known.set(value, code);
  }
}

/** The code of an id as SQL; null, which nothing equals, for one that usage was never kept by. */
export function idCodeSql(sql: ISql, id: string | null) {
  return sql`(select code from usage_ids where id = ${id})`;
}

/** The codes of ids, of those that usage was ever kept by, as a set in SQL. */
export function idCodesSql(sql: Sql, ids: readonly string[]) {
  return sql`(select code from usage_ids where id in (${valuesSql(sql, ids)}))`;
}

/** UUIDs as a query of theirs. */
export function valuesSql(sql: Sql, ids: readonly string[]) {
  return sql`select value::uuid from json_array_elements_text(${JSON.stringify(ids)}::text::json)`;
}

/** The same of a name. */
export function nameCodeSql(sql: Sql, name: string | null) {
  return sql`(select code from usage_names where name = ${name})`;
}

/** The same of several names. */
export function nameCodesSql(sql: Sql, names: readonly string[]) {
  return sql`(select code from usage_names where name in (${textsSql(sql, names)}))`;
}

/** Texts as a query of theirs. */
export function textsSql(sql: Sql, texts: readonly string[]) {
  return sql`select value from json_array_elements_text(${JSON.stringify(texts)}::text::json)`;
}
