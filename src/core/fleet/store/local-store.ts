import type { Clock } from '#base/clock.ts';
import { type Fence, requireFence } from '#core/fleet/drivers/drivers.ts';
import type { CoordinationStore, Demand, Leadership, PendingCommand, Published } from './coordination-store.ts';
import type { GoodSpecTable } from './good-spec-table.ts';

export interface LocalStoreOptions {
  readonly clock: Clock;
  /** Keeps specs that passed their checks beyond this process; they are not kept if absent. */
  readonly goodSpecs?: GoodSpecTable;
}

/**
 * The store of a single gateway: its child processes belong to no other gateway, so no agreement is needed. Only the
 * specs that passed their checks outlive the process, if there is a table for them.
 */
export function createLocalStore({ clock, goodSpecs }: LocalStoreOptions): CoordinationStore {
  const leadership = soleLeadership(BigInt(Math.max(1, Math.floor(clock.now()))));
  const commands = new Map<string, PendingCommand>();
  let commandsEver = 0;
  const listeners: (() => void)[] = [];
  let demand: Demand | null = null;
  let published: Published | null = null;

  return {
    leadership,
    async publish(fence, engines) {
      await requireFence(fence);
      const version = (published?.version ?? 0n) + 1n;
      published = { version, epoch: fence.epoch, engines };
      return version;
    },
    read: () => Promise.resolve(published),
    report(own) {
      demand = { gatewayId: 'local', ...own };
      return Promise.resolve();
    },
    demands: () => Promise.resolve(demand === null ? [] : [demand]),
    command(engineId, kind) {
      commandsEver += 1;
      const pending = { id: String(commandsEver), engineId, kind };
      const committed = (): void => {
        commands.set(engineId, pending);
        for (const listener of listeners) listener();
      };
      return Promise.resolve({ id: pending.id, committed });
    },
    takeCommands() {
      const taken = [...commands.values()];
      commands.clear();
      return Promise.resolve(taken);
    },
    goodSpecs: () => goodSpecs?.read() ?? Promise.resolve([]),
    async keepGoodSpec(fence, spec) {
      if (!(await fence.holds())) return null;
      return goodSpecs === undefined ? spec.revision + 1n : goodSpecs.keep(spec, null);
    },
    async dropGoodSpec(fence, spec) {
      return (await fence.holds()) && (goodSpecs === undefined || goodSpecs.drop(spec, null));
    },
    onChange(listener) {
      listeners.push(listener);
    },
    start: () => leadership.start(),
    close: () => leadership.close(),
  };
}

/** Returns a leadership that no other gateway can take. */
function soleLeadership(epoch: bigint): Leadership {
  let leads = false;
  const listeners: (() => void)[] = [];
  const fence: Fence = { epoch, holds: () => Promise.resolve(leads) };
  function set(value: boolean): Promise<void> {
    leads = value;
    for (const listener of listeners) listener();
    return Promise.resolve();
  }
  return {
    current: () => (leads ? fence : null),
    onChange(listener) {
      listeners.push(listener);
    },
    start: () => set(true),
    close: () => set(false),
  };
}
