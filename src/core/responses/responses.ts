import { and, eq, inArray, lt, type SQL, sql } from 'drizzle-orm';
import type { Clock } from '#base/clock.ts';
import type { Db } from '#base/database/database.ts';
import type { Log } from '#base/log.ts';
import type { Audit, Author } from '#core/audit/audit.ts';
import type { Secrets } from '#core/secrets/secrets.ts';
import { BoundedAsking, compress, decompress } from '#core/stored-requests/stored-requests.ts';
import { answered } from './answered.ts';
import { type Chain, type ChainOptions, readChain } from './chain.ts';
import { createDataKeys, decrypt, encrypt } from './data-keys.ts';
import { isItemId, itemIdsOf, outputItemOf } from './items.ts';
import { storedResponseItems, storedResponses } from './schema.ts';

export type { Chain, ChainOptions, Turn } from './chain.ts';
export { countOtherKeysResponses } from './data-keys.ts';

/** Owner of the responses that a caller may name: an organization, or one of its projects. */
export interface ResponseScope {
  readonly organizationId: string;
  /** Null for all projects of the organization. */
  readonly projectId: string | null;
}

/** Memory for texts of responses. It is taken before they are in memory. */
export interface ReadMemory {
  /** @throws AppError if there is too little; then nothing is read */
  grow(bytes: number): void;
  /** Frees all that was taken. */
  release(): void;
}

/** A response to store. */
export interface NewResponse {
  readonly id: string;
  readonly organizationId: string;
  readonly projectId: string;
  readonly previousId: string | null;
  /** JSON list with the input items of this turn, compressed. */
  readonly input: Buffer;
  /** Bytes of the list before compression. */
  readonly inputBytes: number;
  /** JSON of the response. */
  readonly response: Buffer;
}

/**
 * Responses of /v1/responses that are kept for their organization, so that later requests can name them. Content is
 * compressed, then encrypted. Each response expires; a conversation that goes on keeps its earlier turns.
 */
export interface StoredResponses {
  /** False if the setting turns storing off. */
  readonly isOn: boolean;
  /** @throws Error if the database does not answer in time; then nothing is stored, or the response without a reply */
  keep(response: NewResponse): Promise<void>;
  /**
   * Returns the JSON of a response; null without one. The caller frees the memory.
   * @throws AppError database_unavailable, as all methods that read
   */
  read(scope: ResponseScope, id: string, memory: ReadMemory): Promise<string | null>;
  /** Returns the JSON list of a response's input items; null without such a response. The caller frees the memory. */
  readInput(scope: ResponseScope, id: string, memory: ReadMemory): Promise<string | null>;
  /** Returns the conversation that ends with a response, and postpones the expiry of its turns. */
  readChain(scope: ResponseScope, options: ChainOptions): Promise<Chain>;
  /** Returns the JSON of output items by their ids. Ids that nothing is stored for are left out. */
  readItems(scope: ResponseScope, ids: readonly string[], options: ItemOptions): Promise<ReadonlyMap<string, string>>;
  /**
   * Without an answer of the database in time, the response may be deleted later.
   * @returns false if there is no such response
   */
  remove(scope: ResponseScope, id: string, author: Author): Promise<boolean>;
  /** Deletes expired responses, one batch at a time. */
  deleteOld(): Promise<void>;
  /** Follows a rotation of the platform key. */
  reseal(): Promise<void>;
}

export interface ItemOptions {
  /** Memory for one response at a time; it is free again at the end. */
  readonly memory: ReadMemory;
  /** Called with the bytes of each item that was found; an error ends the reading. */
  readonly reserve: (bytes: number, id: string) => void;
}

export interface StoredResponsesOptions {
  readonly db: Db;
  readonly secrets: Secrets;
  readonly clock: Clock;
  readonly log: Log;
  readonly audit: Audit;
  /** Time that a response is kept after it was created or last continued; 0 stores nothing. */
  readonly ageMaxMs: number;
}

type Row = typeof storedResponses.$inferSelect;
type Part = 'input' | 'response';

/** Time that the end of a request waits for its response to be stored. */
const keepTimeoutMs = 2000;
const deletedAtOnce = 200;

const bindingOf = (row: Pick<Row, 'id' | 'organizationId'>, part: Part): string =>
  `headgate response ${row.organizationId} ${row.id} ${part}`;

export function createStoredResponses(options: StoredResponsesOptions): StoredResponses {
  return new ResponseRoom(options);
}

class ResponseRoom implements StoredResponses {
  readonly isOn: boolean;
  readonly #options: StoredResponsesOptions;
  readonly #keys: ReturnType<typeof createDataKeys>;
  readonly #asking = new BoundedAsking(keepTimeoutMs);

  constructor(options: StoredResponsesOptions) {
    this.#options = options;
    this.#keys = createDataKeys(options);
    this.isOn = options.ageMaxMs > 0;
  }

  keep(response: NewResponse): Promise<void> {
    return this.#asking.ask(
      () => this.#insert(response),
      () => undefined,
    );
  }

  async #insert({ input, inputBytes, response, ...ids }: NewResponse): Promise<void> {
    const [key, packed] = await Promise.all([this.#keys.current(), compress(response)]);
    const row: Row = {
      ...ids,
      expiresAt: this.#expiry(),
      dataKeyId: key.id,
      bytes: inputBytes + response.length,
      input: encrypt(key, bindingOf(ids, 'input'), input),
      response: encrypt(key, bindingOf(ids, 'response'), packed),
    };
    const items = itemIdsOf(response).map((itemId) => ({
      organizationId: ids.organizationId,
      itemId,
      responseId: ids.id,
    }));
    const { orm } = this.#options.db;
    if (items.length === 0) {
      await orm.insert(storedResponses).values(row);
      return;
    }
    await orm.transaction(async (tx) => {
      await tx.insert(storedResponses).values(row);
      await tx.insert(storedResponseItems).values(items);
    });
  }

  read(scope: ResponseScope, id: string, memory: ReadMemory): Promise<string | null> {
    return this.#readPart(scope, id, 'response', memory);
  }

  readInput(scope: ResponseScope, id: string, memory: ReadMemory): Promise<string | null> {
    return this.#readPart(scope, id, 'input', memory);
  }

  async #readPart(scope: ResponseScope, id: string, part: Part, memory: ReadMemory): Promise<string | null> {
    const { orm } = this.#options.db;
    const [row] = await answered(
      orm
        .select(columnsOf(part))
        .from(storedResponses)
        .where(and(eq(storedResponses.id, id), this.#isSeen(scope))),
    );
    if (row === undefined) return null;
    memory.grow(row.bytes);
    return this.#open(row, part, row.sealed);
  }

  async readChain(scope: ResponseScope, options: ChainOptions): Promise<Chain> {
    const { db, clock, ageMaxMs } = this.#options;
    return readChain(db, {
      ...scope,
      ...options,
      nowMs: clock.now(),
      ageMaxMs,
      open: (row, part) => this.#open(row, part, row[part]),
    });
  }

  async readItems(
    scope: ResponseScope,
    ids: readonly string[],
    { memory, reserve }: ItemOptions,
  ): Promise<ReadonlyMap<string, string>> {
    const found = new Map<string, string>();
    const storable = ids.filter(isItemId);
    if (storable.length === 0) return found;
    const put = (itemId: string, item: string | null): void => {
      if (item === null) return;
      reserve(Buffer.byteLength(item), itemId);
      found.set(itemId, item);
    };
    const byResponse = Map.groupBy(await this.#findItems(scope, storable), ({ responseId }) => responseId);
    try {
      for (const [responseId, wanted] of byResponse) {
        const response = await this.read(scope, responseId, memory);
        for (const { itemId } of wanted) put(itemId, response === null ? null : outputItemOf(response, itemId));
        memory.release();
      }
    } finally {
      memory.release();
    }
    return found;
  }

  /** Returns the newest response with each item. UUIDv7 are in the order of time. */
  #findItems(
    scope: ResponseScope,
    ids: string[],
  ): Promise<readonly { readonly itemId: string; readonly responseId: string }[]> {
    const items = storedResponseItems;
    return answered(
      this.#options.db.orm
        .selectDistinctOn([items.itemId], { itemId: items.itemId, responseId: items.responseId })
        .from(items)
        .innerJoin(storedResponses, eq(storedResponses.id, items.responseId))
        .where(and(eq(items.organizationId, scope.organizationId), inArray(items.itemId, ids), this.#isSeen(scope)))
        .orderBy(items.itemId, sql`${items.responseId} desc`),
    );
  }

  async remove(scope: ResponseScope, id: string, author: Author): Promise<boolean> {
    const { db, audit } = this.#options;
    const removed = db.orm.transaction(async (tx) => {
      const which = and(eq(storedResponses.id, id), this.#isSeen(scope));
      const [row] = await tx.delete(storedResponses).where(which).returning({ id: storedResponses.id });
      if (row === undefined) return false;
      await audit.record(tx, {
        organizationId: scope.organizationId,
        author,
        action: 'response.deleted',
        targetType: 'response',
        targetId: `resp_${row.id}`,
        before: { id: `resp_${row.id}` },
        after: null,
      });
      return true;
    });
    return answered(removed);
  }

  async deleteOld(): Promise<void> {
    const { db, clock } = this.#options;
    for (let deleted = deletedAtOnce; deleted === deletedAtOnce;) {
      const old = db.orm
        .select({ id: storedResponses.id })
        .from(storedResponses)
        .where(lt(storedResponses.expiresAt, new Date(clock.now())))
        .orderBy(storedResponses.expiresAt)
        .limit(deletedAtOnce);
      const rows = await db.orm
        .delete(storedResponses)
        .where(inArray(storedResponses.id, old))
        .returning({ id: storedResponses.id });
      deleted = rows.length;
    }
  }

  reseal(): Promise<void> {
    return this.#keys.reseal();
  }

  #expiry(): Date {
    const { clock, ageMaxMs } = this.#options;
    return new Date(clock.now() + ageMaxMs);
  }

  #isSeen({ organizationId, projectId }: ResponseScope): SQL | undefined {
    const { clock } = this.#options;
    return and(
      eq(storedResponses.organizationId, organizationId),
      sql`${storedResponses.expiresAt} > ${new Date(clock.now()).toISOString()}::timestamptz`,
      ...(projectId === null ? [] : [eq(storedResponses.projectId, projectId)]),
    );
  }

  async #open(row: Pick<Row, 'id' | 'organizationId' | 'dataKeyId'>, part: Part, sealed: Buffer): Promise<string> {
    const key = await this.#keys.byId(row.dataKeyId);
    return (await decompress(decrypt(key, bindingOf(row, part), sealed))).toString('utf8');
  }
}

function columnsOf(part: Part) {
  const { id, organizationId, dataKeyId, bytes } = storedResponses;
  return { id, organizationId, dataKeyId, bytes, sealed: storedResponses[part] };
}
