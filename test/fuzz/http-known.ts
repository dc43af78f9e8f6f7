import type { Connection } from './http-requests.ts';

/** Connections that were answered wrongly once. */
export const knownConnections: readonly (readonly Connection[])[] = [];
