import { closeNetwork } from '#base/net/net.ts';
import { terraformEnvironment } from '#core/runs/runner/environment.ts';
import { runUser } from '#core/runs/runner/sandbox.ts';
import type { Phase } from '#core/runs/runner/types.ts';
import { containerName, keeperPhase, labelsOf, networkName } from './names.ts';

/** Bodies of POST /containers/create for runs. The gate of the Docker socket checks them field by field. */

export interface ContainerSettings {
  /** The entrypoint is OpenTofu or Terraform; the image has a shell and iptables. */
  readonly image: string;
  /** A network that exists on every host; null: each run has its own. */
  readonly network: string | null;
  /** `cluster`: a run reaches only the nodes of its cluster. `internet`: everything that its network reaches. */
  readonly egress: 'cluster' | 'internet';
  /** Folder of provider packages on every host; null: providers come from registries. */
  readonly mirror: string | null;
  readonly memoryBytes: number;
  /** Thousandths of a core. */
  readonly milliCpus: number;
}

/** Mount point of a run's volume. Its root belongs to the Docker engine, the folder below to the run. */
export const volumePath = '/work';
export const workPath = `${volumePath}/run`;
export const mirrorPath = '/mirror';
export const owner = runUser;

const pidsMax = 512;

const heldIn = {
  RestartPolicy: { Name: 'no' },
  Init: true,
  IpcMode: 'private',
  ReadonlyRootfs: true,
  CapDrop: ['ALL'],
  SecurityOpt: ['no-new-privileges'],
};
const withoutCheck = { Test: ['NONE'] };

export interface KeeperOptions {
  readonly runId: string;
  readonly fleetId: string;
  readonly settings: ContainerSettings;
  readonly reach: readonly string[];
}

/** Returns the keeper: the container with a run's volume and network. It executes nothing of the run. */
export function keeperBody({ runId, fleetId, settings, reach }: KeeperOptions): object {
  return {
    Image: settings.image,
    Entrypoint: ['/bin/sh', '-c', closeNetwork, 'headgate'],
    Cmd: [settings.egress, ...new Set(reach)],
    User: '0:0',
    WorkingDir: '/',
    Labels: labelsOf(fleetId, runId, keeperPhase),
    StopSignal: 'SIGKILL',
    Healthcheck: withoutCheck,
    Volumes: { [volumePath]: {} },
    HostConfig: {
      ...heldIn,
      NetworkMode: settings.network ?? networkName(runId),
      CapAdd: ['NET_ADMIN'],
      Tmpfs: { '/run': 'rw,noexec,nosuid,nodev,size=1m' },
      PidsLimit: 32,
      Memory: 67_108_864,
      MemorySwap: 67_108_864,
      NanoCpus: 500_000_000,
      LogConfig: { Type: 'json-file', Config: { 'max-size': '1m', 'max-file': '1' } },
    },
  };
}

export interface PhaseOptions {
  readonly runId: string;
  readonly fleetId: string;
  readonly settings: ContainerSettings;
  readonly cwd: string;
  readonly phase: Phase;
}

/** Returns the container of a phase: the image's entrypoint with the phase's arguments. */
export function phaseBody({ runId, fleetId, settings, cwd, phase }: PhaseOptions): object {
  const { memoryBytes, milliCpus, mirror } = settings;
  const keeper = containerName(runId, keeperPhase);
  const mount = { Type: 'bind', Source: mirror, Target: mirrorPath, ReadOnly: true };
  return {
    Image: settings.image,
    Cmd: [`-chdir=${cwd === '' ? workPath : `${workPath}/${cwd}`}`, ...phase.args],
    Env: terraformEnvironment({ root: workPath, tmpDir: '/tmp' }),
    User: `${owner.uid}:${owner.gid}`,
    WorkingDir: workPath,
    Labels: labelsOf(fleetId, runId, phase.name),
    StopSignal: 'SIGINT',
    Healthcheck: withoutCheck,
    HostConfig: {
      ...heldIn,
      NetworkMode: `container:${keeper}`,
      VolumesFrom: [keeper],
      Tmpfs: { '/tmp': 'rw,noexec,nosuid,nodev,size=64m,mode=1777' },
      PidsLimit: pidsMax,
      Memory: memoryBytes,
      // Equal to the memory, so that nothing is swapped to the host's disk.
      MemorySwap: memoryBytes,
      NanoCpus: milliCpus * 1_000_000,
      Ulimits: [
        { Name: 'nofile', Soft: 4096, Hard: 4096 },
        { Name: 'core', Soft: 0, Hard: 0 },
        { Name: 'fsize', Soft: 1_073_741_824, Hard: 1_073_741_824 },
      ],
      // Enough for the log of a run; older output beyond it is dropped.
      LogConfig: { Type: 'json-file', Config: { 'max-size': '50m', 'max-file': '2' } },
      Mounts: mirror === null ? [] : [mount],
    },
  };
}
