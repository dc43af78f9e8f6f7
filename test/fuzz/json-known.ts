import type { JsonRequest } from './json-bodies.ts';

/** Bodies that were answered wrongly once. */
export const knownJson: readonly (readonly JsonRequest[])[] = [];
