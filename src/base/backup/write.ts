import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createWriteStream, existsSync } from 'node:fs';
import { link, open, rename, rm, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { TransactionSql } from 'postgres';
import { isFileError, readVersion } from '#base/config/config.ts';
import type { Db } from '#base/database/database.ts';
import { BackupError } from './backup-error.ts';
import { type BackupHead, formatName, formatVersion, rowsEnd, toLine } from './format.ts';
import { listTables, quote, readMigrationsOf, readPartitions, readSequences, type TableShape } from './shape.ts';

export interface BackupMade {
  readonly bytes: number;
  readonly rows: number;
  readonly tables: number;
  /** Moment of the data, in ISO 8601. */
  readonly madeAt: string;
}

export interface WriteOptions {
  readonly db: Db;
  readonly path: string;
  /** Identifies the database, so that data elsewhere, such as spools, can be matched to it. */
  readonly origin: string;
  /** Tables whose rows are not written. */
  readonly leaveOut: readonly string[];
}

/**
 * Writes the content of a database as of one moment, while the database stays in use. The file gets its name when it is
 * complete and on disk; a failed backup leaves nothing.
 * @throws BackupError if the file exists, cannot be written, or the disk is full
 */
export async function writeBackup(options: WriteOptions): Promise<BackupMade> {
  const { path } = options;
  const target = resolve(path);
  if (existsSync(target))
    throw new BackupError(`${path} already exists. A backup does not overwrite files: choose another path.`);
  const partial = `${target}.partial-${randomBytes(4).toString('hex')}`;
  try {
    const made = await writeContent(options, partial);
    const { size: bytes } = await stat(partial);
    await giveName(partial, target, path);
    return { ...made, bytes };
  } catch (error) {
    throw toBackupError(path, error);
  } finally {
    await rm(partial, { force: true });
  }
}

/** Formats of values, independent of the server's settings. */
const plainSettings = ["datestyle = 'ISO'", "timezone = 'UTC'", "bytea_output = 'hex'", 'extra_float_digits = 1'];

async function writeContent({ db, origin, leaveOut }: WriteOptions, path: string): Promise<Omit<BackupMade, 'bytes'>> {
  const tables = await listTables(db.sql);
  return db.sql.begin('isolation level repeatable read read only', async (tx) => {
    // Before the snapshot, which the first query takes: no partition is dropped or moved between the two.
    const names = tables.map(({ name }) => quote(name)).join(', ');
    if (names !== '') await tx.unsafe(`lock table ${names} in access share mode`);
    for (const setting of plainSettings) await tx.unsafe(`set local ${setting}`);
    const content = new Content(tx, origin, leaveOut);
    const file = createWriteStream(path, { flags: 'wx', mode: 0o600, flush: true });
    await pipeline(content.lines(), createGzip(), file);
    return content.made();
  });
}

async function giveName(partial: string, target: string, path: string): Promise<void> {
  try {
    // Unlike a rename, a link never replaces another file.
    await link(partial, target);
  } catch (error) {
    if (isFileError(error, 'EEXIST'))
      throw new BackupError(`${path} already exists. A backup does not overwrite files: choose another path.`);
    // File systems without links.
    await rename(partial, target);
  }
  const folder = await open(dirname(target), 'r');
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

const fileErrors = [
  'ENOSPC',
  'EDQUOT',
  'EFBIG',
  'EACCES',
  'EROFS',
  'ENOENT',
  'ENOTDIR',
  'EIO',
  'EPERM',
  'ENAMETOOLONG',
];

function toBackupError(path: string, error: unknown): unknown {
  if (!fileErrors.some((code) => isFileError(error, code))) return error;
  const full = ['ENOSPC', 'EDQUOT'].some((code) => isFileError(error, code));
  const reason = error instanceof Error ? error.message : '';
  return new BackupError(
    full
      ? `${path} cannot be written: the disk is full. The partial file was removed.`
      : `${path} cannot be written (${reason}). The partial file was removed.`,
    error,
  );
}

/**
 * Reads a stream to its end. postgres.js stops reading its socket when the stream is full, and continues when the
 * stream asks for more. A stream that was given up or has ended never asks, and the connection would never answer.
 */
async function takeToEnd(rows: Readable): Promise<void> {
  if (!rows.readableEnded && !rows.destroyed) {
    rows.resume();
    await once(rows, 'end');
  }
  rows._read(0);
}

class Content {
  readonly #tx: TransactionSql;
  readonly #origin: string;
  readonly #leaveOut: ReadonlySet<string>;
  readonly #hash = createHash('sha256');
  readonly #rows: Record<string, number> = {};
  #madeAt = '';

  constructor(tx: TransactionSql, origin: string, leaveOut: readonly string[]) {
    this.#tx = tx;
    this.#origin = origin;
    this.#leaveOut = new Set(leaveOut);
  }

  made(): Omit<BackupMade, 'bytes'> {
    const counts = Object.values(this.#rows);
    return { rows: counts.reduce((sum, count) => sum + count, 0), tables: counts.length, madeAt: this.#madeAt };
  }

  async *lines(): AsyncGenerator<Buffer> {
    const tables = await listTables(this.#tx);
    if (tables.length === 0) throw new BackupError('There is nothing to back up: no gateway has used this database.');
    yield this.#add(toLine(await this.#head()));
    for (const table of tables) yield* this.#table(table);
    // Read after the rows, so that values which rows have taken from a sequence are not given out again.
    const sequences = await readSequences(this.#tx);
    yield toLine({ rows: this.#rows, sequences, sha256: this.#hash.digest('hex') });
  }

  async #head(): Promise<BackupHead> {
    const [row] = await this.#tx<{ version: string; now: string }[]>`
      select current_setting('server_version') as version,
        to_char(now() at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as now`;
    this.#madeAt = row?.now ?? '';
    return {
      format: formatName,
      format_version: formatVersion,
      headgate_version: readVersion(),
      made_at: this.#madeAt,
      postgres_version: row?.version ?? '',
      origin: this.#origin,
      migrations: await readMigrationsOf(this.#tx),
      partitions: await readPartitions(this.#tx),
    };
  }

  async *#table({ name, columns }: TableShape): AsyncGenerator<Buffer> {
    yield this.#add(toLine({ table: name, columns }));
    let count = 0;
    const from = `select ${columns.map(quote).join(', ')} from ${quote(name)}${this.#leaveOut.has(name) ? ' where false' : ''}`;
    const rows = await this.#tx.unsafe(`copy (${from}) to stdout`).readable();
    try {
      for await (const chunk of rows.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
        for (let at = chunk.indexOf(0x0a); at !== -1; at = chunk.indexOf(0x0a, at + 1)) count += 1;
        yield this.#add(chunk);
      }
    } finally {
      await takeToEnd(rows);
    }
    this.#rows[name] = count;
    yield this.#add(rowsEnd);
  }

  #add(bytes: Buffer): Buffer {
    this.#hash.update(bytes);
    return bytes;
  }
}
