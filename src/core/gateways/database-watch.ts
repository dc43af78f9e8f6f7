/** What a heartbeat reads of the PostgreSQL that took it. */
export interface Sighting {
  /** Of the cluster and its database, which a fail-over keeps: what Redis and spools are named by. */
  readonly database: string;
  /** When its server was started: another moment is another server, or one that has restored what is on its disk. */
  readonly server: string;
  /** Heartbeats that the database has of this gateway, this one included. */
  readonly beats: number;
  /** By the database's clock, as PostgreSQL prints it. */
  readonly at: string;
  /**
   * This gateway's heartbeat before in the database's own history; where it has none, the newest of all gateways;
   * `-infinity` where it has no heartbeat at all.
   */
  readonly before: string;
}

/**
 * - `server`: another server answers, as after a fail-over; it may lack what was committed just before
 * - `rewound`: heartbeats are gone that PostgreSQL had taken, and with them whatever was committed after the last that is left
 * - `exchanged`: another database answers, by whose name this gateway knows nothing
 */
export type DatabaseChange = 'server' | 'rewound' | 'exchanged';

export interface Noticed {
  readonly change: DatabaseChange;
  /** The last heartbeat that the database still has from before the change, by its clock; `-infinity` for none. */
  readonly knownAt: string;
}

/** Compares heartbeats: PostgreSQL may be followed by one that has not all that it had acknowledged. */
export class DatabaseWatch {
  #last: Sighting | null = null;
  /** Kept until `accept`: only the first heartbeat in the new history has it. */
  #rewoundTo: string | null = null;

  /** Moment of the last heartbeat in the known history, as PostgreSQL prints it; null before the first one. */
  get seenAt(): string | null {
    return this.#last?.at ?? null;
  }

  /** @returns null where the database goes on from what it was */
  compare(seen: Sighting): Noticed | null {
    const last = this.#last;
    if (last === null) return null;
    const change = changeOf(last, seen);
    if (change === 'rewound') this.#rewoundTo ??= seen.before;
    if (this.#rewoundTo !== null && change !== 'exchanged') return { change: 'rewound', knownAt: this.#rewoundTo };
    return change === null ? null : { change, knownAt: last.at };
  }

  /** Compares the next heartbeats with this one: everything read before it has been read again, or has not changed. */
  accept(seen: Sighting): void {
    this.#last = seen;
    this.#rewoundTo = null;
  }
}

function changeOf(last: Sighting, seen: Sighting): DatabaseChange | null {
  if (seen.database !== last.database) return 'exchanged';
  if (seen.beats <= last.beats) return 'rewound';
  return seen.server === last.server ? null : 'server';
}
