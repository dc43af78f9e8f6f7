import { z } from 'zod';
import {
  type ContainerRunsConfig,
  containerRunsVariables,
  type LocalRunsConfig,
  localRunsVariables,
  readContainerRuns,
  readLocalRuns,
  stateBytesOf,
} from './runs.ts';
import { secondsMs, section } from './section.ts';
import { backupPassphrase, hostNames, optionalWhole, platformKeys, text, whole } from './values.ts';

/** Variables of the platform: clusters, runs of stacks and their web addresses. */

export interface PlatformConfig {
  /** Keys of 32 bytes; the first encrypts, the others only decrypt. Null: the keys in the data folder's file. */
  readonly keys: readonly Buffer[] | null;
  /** Seals copies of the platform keys in the database; null: backups do not carry the keys. */
  readonly backupPassphrase: string | null;
  /** Milliseconds without a report after which a node that has reported counts as released; null: never. */
  readonly nodeSilenceMs: number | null;
  /** Name or path of a program; null: `tofu`, or else `terraform`. */
  readonly terraformBin: string | null;
  /** Null: `runs` of the data folder. */
  readonly runsDir: string | null;
  /** A folder of provider packages; null: they are fetched from registries. */
  readonly providerMirror: string | null;
  /** Allows runs without a sandbox. */
  readonly allowUnsandboxedRuns: boolean;
  /** Null: runs never use containers. */
  readonly containerRuns: ContainerRunsConfig | null;
  readonly localRuns: LocalRunsConfig;
  /** Bytes of a Terraform state; a larger state is not kept in the database. */
  readonly stateBytesMax: number;
  readonly runsAtOnce: number;
  /** Milliseconds that a plan may take, and an apply. */
  readonly runMs: number;
  /** Hours between two drift checks of an applied run; null: only requested ones. */
  readonly driftHours: number | null;
  /** Address that serves the web addresses of runs; null: nowhere. */
  readonly web: { readonly host: string; readonly port: number } | null;
  /** Host names of the gateway itself. */
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
    HEADGATE_DRIFT_HOURS: whole(0, 8760, 24),
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
    driftHours: read.HEADGATE_DRIFT_HOURS === 0 ? null : read.HEADGATE_DRIFT_HOURS,
    web: read.HEADGATE_WEB_PORT === undefined ? null : { host: read.HEADGATE_WEB_HOST, port: read.HEADGATE_WEB_PORT },
    ownHosts: read.HEADGATE_OWN_HOSTS,
  }),
);
