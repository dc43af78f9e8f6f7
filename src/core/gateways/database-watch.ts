/** Facts that a heartbeat reads from the PostgreSQL server that stored the heartbeat. */
export interface Sighting {
  /** Id of the cluster and its database, which survives a fail-over; part of the names of Redis keys and spools. */
  readonly database: string;
  /** Start time of the server: another time means another server, or one that has restored the data on its disk. */
  readonly server: string;
  /** Number of this gateway's heartbeats in the database, including this one. */
  readonly beats: number;
  /** Time of the heartbeat by the database's clock, as PostgreSQL prints it. */
  readonly at: string;
  /**
   * This gateway's previous heartbeat in the database's own history; if it has none, the newest heartbeat of all
   * gateways; `-infinity` if there is no heartbeat at all.
   */
  readonly before: string;
}

/**
 * Changes of the database:
 * - `server`: another server answers, as after a fail-over; it may lack the last commits
 * - `rewound`: heartbeats that PostgreSQL had stored are missing, and with them every commit after the last one left
 * - `exchanged`: another database answers, about which this gateway knows nothing
 */
export type DatabaseChange = 'server' | 'rewound' | 'exchanged';

export interface Noticed {
  readonly change: DatabaseChange;
  /** The last heartbeat from before the change that the database still has, by its clock; `-infinity` for none. */
  readonly knownAt: string;
}

/** Compares heartbeats: after a fail-over, PostgreSQL may lack commits that it had acknowledged. */
export class DatabaseWatch {
  #last: Sighting | null = null;
  /** Kept until `accept`: only the first heartbeat in the new history has this value. */
  #rewoundTo: string | null = null;

  /** Time of the last heartbeat in the known history, as PostgreSQL prints it; null before the first heartbeat. */
  get seenAt(): string | null {
    return this.#last?.at ?? null;
  }

  /** @returns null if the database continues its known history */
  compare(seen: Sighting): Noticed | null {
    const last = this.#last;
    if (last === null) return null;
    const change = changeOf(last, seen);
    if (change === 'rewound') this.#rewoundTo ??= seen.before;
    if (this.#rewoundTo !== null && change !== 'exchanged') return { change: 'rewound', knownAt: this.#rewoundTo };
    return change === null ? null : { change, knownAt: last.at };
  }

  /**
   * Makes this heartbeat the base of later comparisons: all data read before it has been read again, or has not
   * changed.
   */
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
