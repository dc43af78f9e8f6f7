/**
 * Reasons for the duration of a request, and what its limits had left: about twenty bytes stored with its record.
 * Bytes: a bit mask of the optional fields that follow, numbers of seven bits a byte (LEB128), the replica's id, and
 * last three bytes (big-endian) that the statement adds when it writes the row: milliseconds until then.
 */
export interface RequestFacts {
  /** Time from its first byte until it was admitted, in milliseconds. */
  readonly admittedMs: number;
  /** Part of the wait for a replica that its engine took to start. */
  readonly coldMs: number;
  /** Limits that the key had left once the request was admitted; null where there is no limit. */
  readonly remaining: RemainingLimits;
  /** The replica that answered; null if none was asked. */
  readonly replica: ReplicaFact | null;
}

export interface RemainingLimits {
  readonly requests: number | null;
  readonly tokens: number | null;
  readonly monthTokens: number | null;
  readonly concurrency: number | null;
}

export interface ReplicaFact {
  readonly id: string;
  /** Time for which the replica had been ready; null if unknown. */
  readonly ageSeconds: number | null;
}

export interface StoredFacts extends RequestFacts {
  /**
   * Time from the end of the answer until the record was on disk: the record's wait, PostgreSQL's time before it wrote
   * the row, and the rest of the commit as in the fastest of the last commits.
   */
  readonly committedMs: number;
}

const limitNames = ['requests', 'tokens', 'monthTokens', 'concurrency'] as const;
const coldBit = 16;
const replicaBit = 32;
const ageBit = 64;
/** Set if the replica's id is stored as text. Otherwise it is stored as seven bytes, whose hex digits most ids are. */
const textBit = 128;
const shortId = /^[0-9a-f]{6}-[0-9a-f]{8}$/;
const shortIdBytes = 7;
/** Maximum stored length of an id; a longer one is cut. */
const idBytesMax = 100;
/** The bit mask, seven numbers of at most eight bytes, and an id with its length. */
const packedBytesMax = 1 + 7 * 8 + 1 + idBytesMax;
const committedBytes = 3;

/** Packs facts, without the last three bytes. */
export function packFacts({ admittedMs, coldMs, remaining, replica }: RequestFacts): Buffer {
  const bytes = Buffer.allocUnsafe(packedBytesMax);
  let bits = 0;
  let at = push(bytes, 1, admittedMs);
  if (coldMs > 0) {
    bits |= coldBit;
    at = push(bytes, at, coldMs);
  }
  for (let index = 0; index < limitNames.length; index += 1) {
    const name = limitNames[index];
    const left = name === undefined ? null : remaining[name];
    if (left === null) continue;
    bits |= 1 << index;
    at = push(bytes, at, left);
  }
  if (replica !== null) {
    bits |= replicaBit;
    if (replica.ageSeconds !== null) {
      bits |= ageBit;
      at = push(bytes, at, replica.ageSeconds);
    }
    if (shortId.test(replica.id)) {
      at += bytes.write(replica.id.replace('-', ''), at, 'hex');
    } else {
      bits |= textBit;
      const idBytes = Buffer.from(replica.id).copy(bytes, at + 1, 0, idBytesMax);
      at = bytes.writeUInt8(idBytes, at) + idBytes;
    }
  }
  bytes[0] = bits;
  return bytes.subarray(0, at);
}

/** Unpacks facts; returns null for bytes that a later version wrote. */
export function unpackFacts(bytes: Buffer): StoredFacts | null {
  const end = bytes.length - committedBytes;
  if (end < 2) return null;
  const reader = new Reader(bytes.subarray(0, end));
  const bits = reader.byte();
  const admittedMs = reader.number();
  const coldMs = (bits & coldBit) === 0 ? 0 : reader.number();
  const [requests, tokens, monthTokens, concurrency] = limitNames.map((_, index) =>
    (bits & (1 << index)) === 0 ? null : reader.number(),
  );
  const replica = (bits & replicaBit) === 0 ? null : readReplica(reader, bits);
  if (!reader.isAtEnd) return null;
  return {
    admittedMs,
    coldMs,
    remaining: {
      requests: requests ?? null,
      tokens: tokens ?? null,
      monthTokens: monthTokens ?? null,
      concurrency: concurrency ?? null,
    },
    replica,
    committedMs: bytes.readUIntBE(end, committedBytes),
  };
}

function readReplica(reader: Reader, bits: number): ReplicaFact {
  const ageSeconds = (bits & ageBit) === 0 ? null : reader.number();
  if ((bits & textBit) !== 0) return { id: reader.take(reader.byte()).toString(), ageSeconds };
  const digits = reader.take(shortIdBytes).toString('hex');
  return { id: `${digits.slice(0, 6)}-${digits.slice(6)}`, ageSeconds };
}

/** Writes a whole number from 0 on; other values are rounded or clamped. Returns the offset after it. */
function push(bytes: Buffer, offset: number, value: number): number {
  let rest = Number.isFinite(value) ? Math.min(Math.max(0, Math.round(value)), Number.MAX_SAFE_INTEGER) : 0;
  let at = offset;
  for (; rest > 127; rest = Math.floor(rest / 128)) at = bytes.writeUInt8((rest % 128) + 128, at);
  return bytes.writeUInt8(rest, at);
}

class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  byte(): number {
    this.#at += 1;
    return this.#bytes[this.#at - 1] ?? 0;
  }

  take(length: number): Buffer {
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }

  number(): number {
    let value = 0;
    for (let factor = 1; ; factor *= 128) {
      const byte = this.byte();
      value += (byte % 128) * factor;
      if (byte < 128) return value;
    }
  }
}
