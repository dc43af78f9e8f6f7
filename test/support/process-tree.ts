import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** A process as /proc shows it. */
export interface Seen {
  readonly pid: number;
  readonly parent: number;
  readonly name: string;
  /** With the number it tells a process from a later one of that number. */
  readonly startedAt: string;
}

/** Ended processes that nobody has noticed yet are not there. */
export function listProcesses(): readonly Seen[] {
  return readdirSync('/proc').flatMap((entry) => {
    if (!/^\d+$/.test(entry)) return [];
    const stat = read(`/proc/${entry}/stat`);
    const nameEnd = stat.lastIndexOf(')');
    const fields = stat.slice(nameEnd + 2).split(' ');
    if (nameEnd === -1 || fields[0] === 'Z' || fields[0] === 'X') return [];
    const name = stat.slice(stat.indexOf('(') + 1, nameEnd);
    return [{ pid: Number(entry), parent: Number(fields[1]), name, startedAt: fields[19] ?? '' }];
  });
}

/** Returns what a process has started, and what these have. */
export function listDescendants(root: number): readonly Seen[] {
  const all = listProcesses();
  const isOf = (pid: number): boolean => {
    const parent = all.find((seen) => seen.pid === pid)?.parent;
    return parent === root || (parent !== undefined && isOf(parent));
  };
  return all.filter(({ pid }) => isOf(pid));
}

function read(path: string): string {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    // Gone, or somebody else's.
    return '';
  }
}

/**
 * A process with all that it has started, and what these have: also what lost its parent since, and what carries the
 * run's mark in its environment, as a container's shim does that was never anybody's child here.
 */
export class ProcessTree {
  readonly #root: number;
  readonly #mark: string;
  /** By number; those that were seen and may have ended. */
  readonly #known = new Map<number, Seen>();
  readonly #checked = new Set<string>();

  constructor(root: number, run: string) {
    this.#root = root;
    this.#mark = `=${run}`;
  }

  /** Looks once. @returns what is there now, without the root */
  look(): readonly Seen[] {
    const all = listProcesses().filter(({ pid }) => pid !== process.pid && pid !== this.#root);
    const byPid = new Map(all.map((seen) => [seen.pid, seen]));
    for (const [pid, { startedAt }] of this.#known) {
      if (byPid.get(pid)?.startedAt !== startedAt) this.#known.delete(pid);
    }
    for (let isNew = true; isNew;) {
      const found = all.filter((seen) => !this.#known.has(seen.pid) && this.#isOurs(seen));
      for (const seen of found) this.#known.set(seen.pid, seen);
      isNew = found.length > 0;
    }
    return [...this.#known.values()];
  }

  #isOurs({ pid, parent, startedAt }: Seen): boolean {
    if (parent === this.#root || this.#known.has(parent)) return true;
    const id = `${pid} ${startedAt}`;
    // An environment is read once: it does not change.
    if (this.#checked.has(id)) return false;
    this.#checked.add(id);
    return read(`/proc/${pid}/environ`).includes(this.#mark);
  }

  /**
   * Ends all of it: what starts others first, then PostgreSQL and Docker engines in the way that leaves no shared memory,
   * mounts and containers behind, and what does not end by that.
   */
  async endAll(): Promise<void> {
    const gentle = new Map<string, NodeJS.Signals>([
      ['postgres', 'SIGQUIT'],
      ['dockerd', 'SIGTERM'],
      ['containerd', 'SIGTERM'],
    ]);
    await this.#repeat(killMs, (seen) => (gentle.has(seen.name) || isShim(seen) ? null : 'SIGKILL'));
    const asked = new Set<number>();
    await this.#repeat(gentleMs, ({ pid, name }) => {
      const signal = gentle.get(name) ?? null;
      if (signal === null || asked.has(pid)) return null;
      asked.add(pid);
      return signal;
    });
    await this.#repeat(killMs, () => 'SIGKILL');
  }

  /** Until nothing is left to which `signalFor` would send a signal, or nothing at all. */
  async #repeat(limitMs: number, signalFor: (seen: Seen) => NodeJS.Signals | null): Promise<void> {
    const untilMs = performance.now() + limitMs;
    while (performance.now() < untilMs) {
      const left = this.look();
      if (left.length === 0) return;
      const sent = left.filter((seen) => send(seen.pid, signalFor(seen)));
      if (limitMs === killMs && sent.length === 0) return;
      await sleep(100);
    }
  }
}

const killMs = 10_000;
const gentleMs = 30_000;

/** It ends its container when the engine asks it to. */
const isShim = ({ name }: Seen): boolean => name.startsWith('containerd-shim');

function send(pid: number, signal: NodeJS.Signals | null): boolean {
  if (signal === null) return false;
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
