/** What gateways write for each other of engines: who leads, what is published, what each needs, what operators want. */
export { carriedOut } from './await-command.ts';
export type {
  CoordinationStore,
  Demand,
  EngineCommand,
  EngineDemand,
  GoodSpec,
  PendingCommand,
  Published,
  PublishedEngine,
  PublishedReplica,
} from './coordination-store.ts';
export { createDbStore } from './db-store.ts';
export { createGoodSpecTable } from './good-spec-table.ts';
export { createLocalStore } from './local-store.ts';
