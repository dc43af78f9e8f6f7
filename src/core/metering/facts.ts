/**
 * Why a request took as long as it did, and how near its limits were: some twenty bytes beside its record. Bytes: which
 * of the optional ones follow, numbers of seven bits a byte (LEB128), the replica's id, and last three bytes
 * (big-endian) that the statement adds which writes the row: milliseconds until then.
 */
export interface RequestFacts {
  /** From its first byte until it was admitted, in milliseconds. */
  readonly admittedMs: number;
  /** Of the wait for a replica: what its engine took to start. */
  readonly coldMs: number;
  /** What its key had left once it was admitted; null where there is no limit. */
  readonly remaining: RemainingLimits;
  /** Who made the answer; null where nobody was asked. */
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
  /** For how long it had been ready; null where that is not known. */
  readonly ageSeconds: number | null;
}

export interface StoredFacts extends RequestFacts {
  /**
   * From the end of the answer until the record was on disk: how long it waited, what PostgreSQL needed before it wrote
   * the row, and the rest of the commit as the fastest of the last ones had it.
   */
  readonly committedMs: number;
}

const limitNames = ['requests', 'tokens', 'monthTokens', 'concurrency'] as const;
const coldBit = 16;
const replicaBit = 32;
const ageBit = 64;
/** The replica's id is a text; else it is the seven bytes that most ids are the digits of. */
const textBit = 128;
const shortId = /^([0-9a-f]{6})-([0-9a-f]{8})$/;
const shortIdBytes = 7;
/** A longer id is cut. */
const idBytesMax = 100;
const committedBytes = 3;

/** Without the last three bytes. */
export function packFacts({ admittedMs, coldMs, remaining, replica }: RequestFacts): Buffer {
  const bytes: number[] = [0];
  let bits = 0;
  push(bytes, admittedMs);
  if (coldMs > 0) {
    bits |= coldBit;
    push(bytes, coldMs);
  }
  limitNames.forEach((name, index) => {
    const left = remaining[name];
    if (left === null) return;
    bits |= 1 << index;
    push(bytes, left);
  });
  if (replica !== null) {
    bits |= replicaBit;
    if (replica.ageSeconds !== null) {
      bits |= ageBit;
      push(bytes, replica.ageSeconds);
    }
    const short = shortId.exec(replica.id);
    if (short === null) {
      bits |= textBit;
      const text = Buffer.from(replica.id).subarray(0, idBytesMax);
      bytes.push(text.length, ...text);
    } else bytes.push(...Buffer.from(`${short[1]}${short[2]}`, 'hex'));
  }
  bytes[0] = bits;
  return Buffer.from(bytes);
}

/** Null for bytes that a later version wrote. */
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

/** A whole number from 0 on; of another one what is nearest. */
function push(bytes: number[], value: number): void {
  let rest = Number.isFinite(value) ? Math.min(Math.max(0, Math.round(value)), Number.MAX_SAFE_INTEGER) : 0;
  for (; rest > 127; rest = Math.floor(rest / 128)) bytes.push((rest % 128) + 128);
  bytes.push(rest);
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
