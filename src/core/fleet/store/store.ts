/**
 * State that gateways share about engines: the leader, the published state, each gateway's demand, operators' commands.
 */
export { carriedOut } from './await-command.ts';
export type {
  CoordinationStore,
  Demand,
  Download,
  EngineCommand,
  EngineDemand,
  GoodSpec,
  PendingCommand,
  Published,
  PublishedEngine,
  PublishedReplica,
  StartPhase,
  StartTimeline,
} from './coordination-store.ts';
export { createDbStore } from './db-store.ts';
export { createGoodSpecTable, readGoodDefinitions } from './good-spec-table.ts';
export { createLocalStore } from './local-store.ts';
