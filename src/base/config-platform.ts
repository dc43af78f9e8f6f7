import { z } from 'zod';
import {
  type ContainerRunsConfig,
  containerRunsVariables,
  type LocalRunsConfig,
  localRunsVariables,
  readContainerRuns,
  readLocalRuns,
  stateBytesOf,
} from './config-runs.ts';
import { secondsMs, section } from './config-section.ts';
import { backupPassphrase, hostNames, optionalWhole, platformKeys, text, whole } from './config-values.ts';

/** Variables of the platform: clusters, runs of stacks and their web addresses. */

export interface PlatformConfig {
  /** 32 bytes each; the first encrypts, the others only decrypt. Null: those of a file in the data folder. */
  readonly keys: readonly Buffer[] | null;
  /** Seals copies of the platform keys in the database; null: backups do not carry the keys. */
  readonly backupPassphrase: string | null;
  /** A node that was heard of and then is silent for so long counts as released since; null: never. */
  readonly nodeSilenceMs: number | null;
  /** A program's name or path; null: `tofu`, else `terraform`. */
  readonly terraformBin: string | null;
  /** Null: `runs` of the data folder. */
  readonly runsDir: string | null;
  /** A folder of provider packages; null: they are fetched from registries. */
  readonly providerMirror: string | null;
  /** Runs without a wall around them are allowed. */
  readonly allowUnsandboxedRuns: boolean;
  /** Null: runs never go into containers. */
  readonly containerRuns: ContainerRunsConfig | null;
  readonly localRuns: LocalRunsConfig;
  /** Bytes of a state of Terraform; a larger one is not kept in the database. */
  readonly stateBytesMax: number;
  readonly runsAtOnce: number;
  /** Milliseconds that a plan may take, and an apply. */
  readonly runMs: number;
  /** Where web addresses of runs are served; null: nowhere. */
  readonly web: { readonly host: string; readonly port: number } | null;
  /** Host names that the gateway itself is reached at. */
  readonly ownHosts: readonly string[];
}

export const platform = section(
  {
    HEADGATE_PLATFORM_KEY: platformKeys.optional(),
    HEADGATE_BACKUP_PASSPHRASE: backupPassphrase.optional(),
    HEADGATE_NODE_SILENCE_SECONDS: optionalWhole(60, 31_536_000),
    HEADGATE_TERRAFORM_BIN: text.optional(),
    HEADGATE_RUNS_DIR: text.optional(),
    HEADGATE_PROVIDER_MIRROR: text.optional(),
    HEADGATE_ALLOW_UNSANDBOXED_RUNS: z.enum(['true', 'false']).default('false'),
    ...containerRunsVariables,
    ...localRunsVariables,
    HEADGATE_RUNS_AT_ONCE: whole(1, 1000, 2),
    HEADGATE_RUN_SECONDS: whole(10, 86_400, 3600),
    HEADGATE_WEB_HOST: text.min(1).default('127.0.0.1'),
    HEADGATE_WEB_PORT: optionalWhole(0, 65_535),
    HEADGATE_OWN_HOSTS: hostNames.default([]),
  },
  (read): PlatformConfig => ({
    keys: read.HEADGATE_PLATFORM_KEY ?? null,
    backupPassphrase: read.HEADGATE_BACKUP_PASSPHRASE ?? null,
    nodeSilenceMs:
      read.HEADGATE_NODE_SILENCE_SECONDS === undefined ? null : secondsMs(read.HEADGATE_NODE_SILENCE_SECONDS),
    terraformBin: read.HEADGATE_TERRAFORM_BIN ?? null,
    runsDir: read.HEADGATE_RUNS_DIR ?? null,
    providerMirror: read.HEADGATE_PROVIDER_MIRROR ?? null,
    allowUnsandboxedRuns: read.HEADGATE_ALLOW_UNSANDBOXED_RUNS === 'true',
    containerRuns: readContainerRuns(read),
    localRuns: readLocalRuns(read),
    stateBytesMax: stateBytesOf(read.HEADGATE_RUNS_STATE_MIB),
    runsAtOnce: read.HEADGATE_RUNS_AT_ONCE,
    runMs: secondsMs(read.HEADGATE_RUN_SECONDS),
    web: read.HEADGATE_WEB_PORT === undefined ? null : { host: read.HEADGATE_WEB_HOST, port: read.HEADGATE_WEB_PORT },
    ownHosts: read.HEADGATE_OWN_HOSTS,
  }),
);
