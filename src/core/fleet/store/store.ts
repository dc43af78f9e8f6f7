/** What gateways tell each other of engines: who leads, what is published, what each needs, what operators want. */
export { carriedOut } from './carried-out.ts';
export type {
  Demand,
  EngineDemand,
  FleetBoard,
  GoodSpec,
  Order,
  OrderKind,
  Published,
  PublishedEngine,
  PublishedReplica,
} from './coordination-store.ts';
export { createDbBoard } from './db-store.ts';
export { createGoodSpecTable } from './good-spec-table.ts';
export { createLocalBoard } from './local-store.ts';
