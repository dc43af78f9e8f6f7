export { admit, demandOf, outputLimitHeader, showOutputLimit } from './admit.ts';
export { replicaOutcome } from './affinity.ts';
export { countedMax, isFilledUp } from './counted-max.ts';
export type { PathParts } from './path-parts.ts';
export { relayParts } from './relay-parts.ts';
export { relay } from './relay.ts';
export { flexQueueFull, route } from './route.ts';
export { noteRetried } from './unbilled.ts';
