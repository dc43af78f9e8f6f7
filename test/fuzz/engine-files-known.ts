import type { EngineFilesCase } from './engine-files.ts';

/** Files that were read wrongly once. */
export const knownEngineFiles: readonly EngineFilesCase[] = [];
