/** Counts of an answer of the benchmark's engine. */

export const promptTokens = 458;
export const jsonTokens = 48;
/** A stream counts its content frames and the end mark. */
export const streamTokens = (frames: number): number => frames + 1;
/** Events of a stream besides its content frames: role, finish, usage. */
export const otherEvents = 3;
