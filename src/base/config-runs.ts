import { z } from 'zod';
import { text, whole } from './config-values.ts';

/** Variables of runs in containers. */

export interface ContainerRunsConfig {
  readonly image: string;
  /** Null: each run has one of its own. */
  readonly network: string | null;
  readonly egress: 'cluster' | 'internet';
  readonly memoryBytes: number;
  readonly milliCpus: number;
}

/** One that somebody made: the machine's own would let a run change the machine's filter. */
export const runNetwork = text
  .regex(/^[a-zA-Z0-9][\w.-]{0,127}$/, 'must be the name of a Docker network')
  .refine((name) => !['host', 'none', 'default', 'bridge'].includes(name), 'must be a network that an operator made');

const cores = /^(?:0\.[1-9]\d?|[1-9]\d{0,2}(?:\.\d{1,2})?)$/;

export const containerRunsVariables = {
  HEADGATE_RUNS_IMAGE: text.optional(),
  HEADGATE_RUNS_NETWORK: runNetwork.optional(),
  HEADGATE_RUNS_EGRESS: z.enum(['cluster', 'internet']).default('cluster'),
  HEADGATE_RUNS_MEMORY_MIB: whole(64, 1_048_576, 1024),
  HEADGATE_RUNS_CPUS: z.string().regex(cores, 'must be a number of cores from 0.1 on, such as 1 or 0.5').default('1'),
};

type Read = z.output<z.ZodObject<typeof containerRunsVariables>>;

/** Null: runs never go into containers. */
export function readContainerRuns(read: Read): ContainerRunsConfig | null {
  if (read.HEADGATE_RUNS_IMAGE === undefined) return null;
  return {
    image: read.HEADGATE_RUNS_IMAGE,
    network: read.HEADGATE_RUNS_NETWORK ?? null,
    egress: read.HEADGATE_RUNS_EGRESS,
    memoryBytes: read.HEADGATE_RUNS_MEMORY_MIB * 1_048_576,
    milliCpus: Math.round(Number(read.HEADGATE_RUNS_CPUS) * 1000),
  };
}
