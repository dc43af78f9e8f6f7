import type { ISql, Sql } from 'postgres';
import type { Db } from '#base/db.ts';

/**
 * Gives codes to ids and names, which take their place in the tables of usage, four bytes each. Statements look codes up
 * by id and name themselves: nobody keeps one, since a database that was restored may give it to something else.
 */
export interface Codes {
  /**
   * Gives a code to everything that has none. Asks the database only for what it has not seen.
   * @throws the driver's error
   */
  ensure(wanted: Wanted): Promise<void>;
  /** Asks for everything again: the database may have lost what it had. */
  forget(): void;
}

export interface Wanted {
  /** Organizations, projects, keys, price versions. */
  readonly ids: readonly string[];
  /** Models, paths. */
  readonly names: readonly string[];
}

/** So many of each kind are remembered; more are asked for again. */
const seenMax = 100_000;

export function createCodes(db: Pick<Db, 'sql'>): Codes {
  const ids = new CodeTable(db, idTable);
  const names = new CodeTable(db, nameTable);
  return {
    async ensure(wanted) {
      await ids.ensure(wanted.ids);
      await names.ensure(wanted.names);
    },
    forget() {
      ids.forget();
      names.forget();
    },
  };
}

/** Texts of one table: $1 is a JSON array of values. */
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

  async ensure(values: readonly string[]): Promise<void> {
    const asked = [...new Set(values)].filter((value) => !this.#seen.has(value));
    if (asked.length === 0) return;
    const { sql } = this.#db;
    const found = await sql.unsafe<{ value: string }[]>(this.#texts.find, [JSON.stringify(asked)]);
    // Looked for first: what is in conflict would use up a code.
    const known = new Set(found.map(({ value }) => value));
    const missing = asked.filter((value) => !known.has(value));
    if (missing.length > 0) await sql.unsafe(this.#texts.add, [JSON.stringify(missing)]);
    if (this.#seen.size > seenMax) this.#seen = new Set();
    for (const value of asked) this.#seen.add(value);
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
