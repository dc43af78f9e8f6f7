import { z } from 'zod';
import { list, text, whole } from './values.ts';

/** Variables of runs: in containers, and on the gateway's own machine. */

export interface ContainerRunsConfig {
  readonly image: string;
  /** Null: each run has its own network. */
  readonly network: string | null;
  readonly egress: 'cluster' | 'internet';
  readonly memoryBytes: number;
  readonly milliCpus: number;
}

/** Limits of runs on the gateway's own machine. */
export interface LocalRunsConfig {
  readonly egress: 'cluster' | 'internet' | 'machine';
  /** If one of these limits cannot be enforced, nothing runs on this machine. */
  readonly required: readonly ('network' | 'memory')[];
  readonly memoryBytes: number;
  readonly milliCpus: number;
  /** Bytes of a work folder on disk. */
  readonly diskBytes: number;
  /** User and group of runs if the gateway is root. */
  readonly user: { readonly uid: number; readonly gid: number };
}

/** Name of a network that an operator created: in the machine's own network a run could change the machine's filter. */
export const runNetwork = text
  .regex(/^[a-zA-Z0-9][\w.-]{0,127}$/, 'must be the name of a Docker network')
  .refine(
    (name) => !['host', 'none', 'default', 'bridge'].includes(name),
    'must be a network that an operator created',
  );

const cores = /^(?:0\.[1-9]\d?|[1-9]\d{0,2}(?:\.\d{1,2})?)$/;

export const containerRunsVariables = {
  HEADGATE_RUNS_IMAGE: text.optional(),
  HEADGATE_RUNS_NETWORK: runNetwork.optional(),
  HEADGATE_RUNS_EGRESS: z.enum(['cluster', 'internet', 'machine']).default('cluster'),
  HEADGATE_RUNS_MEMORY_MIB: whole(64, 1_048_576, 1024),
  HEADGATE_RUNS_CPUS: z.string().regex(cores, 'must be a number of cores, at least 0.1, such as 1 or 0.5').default('1'),
};

export const localRunsVariables = {
  HEADGATE_RUNS_DISK_MIB: whole(16, 16_777_216, 4096),
  HEADGATE_RUNS_UID: whole(1, 4_294_967_293, 65_532),
  HEADGATE_RUNS_REQUIRE: list
    .pipe(z.array(z.enum(['network', 'memory'], 'must be network, memory or both, separated by a comma')))
    .default([]),
  HEADGATE_RUNS_STATE_MIB: whole(1, 256, 64),
};

const mebibyte = 1_048_576;
const milliCpusOf = (cpus: string): number => Math.round(Number(cpus) * 1000);

type Read = z.output<z.ZodObject<typeof containerRunsVariables>>;

/** Returns null if runs never use containers. */
export function readContainerRuns(read: Read): ContainerRunsConfig | null {
  if (read.HEADGATE_RUNS_IMAGE === undefined) return null;
  return {
    image: read.HEADGATE_RUNS_IMAGE,
    network: read.HEADGATE_RUNS_NETWORK ?? null,
    egress: read.HEADGATE_RUNS_EGRESS === 'internet' ? 'internet' : 'cluster',
    memoryBytes: read.HEADGATE_RUNS_MEMORY_MIB * mebibyte,
    milliCpus: milliCpusOf(read.HEADGATE_RUNS_CPUS),
  };
}

export function readLocalRuns(read: Read & z.output<z.ZodObject<typeof localRunsVariables>>): LocalRunsConfig {
  const { HEADGATE_RUNS_UID: id } = read;
  return {
    egress: read.HEADGATE_RUNS_EGRESS,
    required: read.HEADGATE_RUNS_REQUIRE,
    memoryBytes: read.HEADGATE_RUNS_MEMORY_MIB * mebibyte,
    milliCpus: milliCpusOf(read.HEADGATE_RUNS_CPUS),
    diskBytes: read.HEADGATE_RUNS_DISK_MIB * mebibyte,
    user: { uid: id, gid: id },
  };
}

/** Converts MiB to the bytes of a state that the database keeps. */
export const stateBytesOf = (mebibytes: number): number => mebibytes * mebibyte;
