import type { Clock } from '#base/clock.ts';
import { type Fence, FenceLostError } from '#core/fleet/drivers/drivers.ts';
import type { Demand, FleetBoard, Leadership, Order, Published } from './coordination-store.ts';
import type { GoodSpecTable } from './good-spec-table.ts';

export interface LocalBoardOptions {
  readonly clock: Clock;
  /** Where specs that passed their checks outlive this process; nowhere when absent. */
  readonly goodSpecs?: GoodSpecTable;
}

/**
 * The board of a gateway that is alone with what it runs: child processes belong to one gateway, and need no others to
 * agree. Nothing of it outlives the process but the specs that passed their checks, where there is a table for them.
 */
export function createLocalBoard({ clock, goodSpecs }: LocalBoardOptions): FleetBoard {
  const leadership = soleLeadership(BigInt(Math.max(1, Math.floor(clock.now()))));
  const orders = new Map<string, Order>();
  let ordersEver = 0;
  const listeners: (() => void)[] = [];
  let demand: Demand | null = null;
  let published: Published | null = null;

  return {
    leadership,
    async publish(fence, engines) {
      if (!(await fence.holds())) throw new FenceLostError();
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
    order(engineId, kind) {
      ordersEver += 1;
      const order = { id: String(ordersEver), engineId, kind };
      const committed = (): void => {
        orders.set(engineId, order);
        for (const listener of listeners) listener();
      };
      return Promise.resolve({ id: order.id, committed });
    },
    takeOrders() {
      const taken = [...orders.values()];
      orders.clear();
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

/** There is nobody to take it away. */
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
