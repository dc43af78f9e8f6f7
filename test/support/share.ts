/** A service that several projects of a run use. */
export interface Shared<T> {
  readonly value: T;
  /** To be called once by each who got it; the last call stops the service. */
  readonly release: () => Promise<void>;
}

interface Service<T> {
  readonly value: T;
  stop(): Promise<void>;
}

interface Entry {
  readonly service: Promise<Service<unknown>>;
  users: number;
}

/** Vitest loads the setup files of each project anew, in one process: only the process itself knows of the others. */
const key = Symbol.for('headgate.tests.shared');
const process_ = globalThis as { [key]?: Map<string, Entry> };

/** Starts a service for the first project that asks for it, and gives it to all who ask later. */
export async function shareInRun<T>(name: string, start: () => Promise<Service<T>>): Promise<Shared<T>> {
  const entries = (process_[key] ??= new Map());
  let entry = entries.get(name);
  if (entry === undefined) {
    entry = { service: start(), users: 0 };
    entries.set(name, entry);
  }
  const shared = entry;
  shared.users += 1;
  const service = (await shared.service) as Service<T>;
  return {
    value: service.value,
    async release() {
      shared.users -= 1;
      if (shared.users > 0) return;
      entries.delete(name);
      await service.stop();
    },
  };
}
