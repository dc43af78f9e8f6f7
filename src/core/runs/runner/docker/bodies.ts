import { runUser } from '#core/runs/runner/sandbox.ts';
import { terraformEnvironment } from '#core/runs/runner/environment.ts';
import type { Phase } from '#core/runs/runner/types.ts';
import { containerName, keeperPhase, labelsOf, networkName } from './names.ts';

/** Bodies of POST /containers/create for runs. The door to the Docker socket knows them, field by field. */

export interface ContainerSettings {
  /** Its entrypoint is OpenTofu or Terraform; it has a shell and iptables. */
  readonly image: string;
  /** A network that is there on every host; null: each run has one of its own. */
  readonly network: string | null;
  /** `cluster`: nothing but the nodes of its cluster. `internet`: everything that its network reaches. */
  readonly egress: 'cluster' | 'internet';
  /** A folder of provider packages on every host; null: they are fetched from registries. */
  readonly mirror: string | null;
  readonly memoryBytes: number;
  /** Thousandths of a core. */
  readonly milliCpus: number;
}

/** Where the volume of a run is; its root is the Docker engine's, what lies below is the run's. */
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

/**
 * Closes the network that all phases of a run share: what they may reach is put into its filter, which takes a
 * capability that none of them has. Docker's own server of names would carry any text out, so it is asked only where an
 * address is a name; and addresses under which clouds tell a machine's secrets are closed whatever else is open.
 */
export const closeNetwork = `
set -eu
egress=$1
shift
names=no
for address in "$@"; do
  case $address in *:*) ;; *[!0-9.]*) names=yes ;; esac
done
has6=no
if [ -s /proc/net/if_inet6 ]; then has6=yes; fi
both() { iptables -w "$@"; if [ "$has6" = yes ]; then ip6tables -w "$@"; fi; }
both -P FORWARD DROP
both -P INPUT DROP
both -A INPUT -i lo -j ACCEPT
both -A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT
for address in "$@"; do
  case $address in
    *:*) if [ "$has6" = yes ]; then ip6tables -w -A OUTPUT -d "$address" -j ACCEPT; fi ;;
    *) iptables -w -A OUTPUT -d "$address" -j ACCEPT ;;
  esac
done
if [ "$names" = no ] && [ "$egress" = cluster ]; then iptables -w -A OUTPUT -d 127.0.0.11 -j DROP; fi
both -A OUTPUT -o lo -j ACCEPT
if [ "$egress" = internet ]; then
  for closed in 169.254.0.0/16 168.63.129.16 100.100.100.200; do iptables -w -A OUTPUT -d "$closed" -j DROP; done
  if [ "$has6" = yes ]; then ip6tables -w -A OUTPUT -d fd00:ec2::254 -j DROP; fi
  both -A OUTPUT -j ACCEPT
fi
both -A OUTPUT -j REJECT || true
both -P OUTPUT DROP
echo closed
exec tail -f /dev/null
`;

/** What it prints when the network is closed. */
export const closedLine = 'closed';

export interface KeeperOptions {
  readonly runId: string;
  readonly fleetId: string;
  readonly settings: ContainerSettings;
  readonly reach: readonly string[];
}

/** The container that keeps volume and network, in which nothing of the run's own is executed. */
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

/** The image's entrypoint with the arguments of a phase. */
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
      // The same: none of it on the host's disk.
      MemorySwap: memoryBytes,
      NanoCpus: milliCpus * 1_000_000,
      Ulimits: [
        { Name: 'nofile', Soft: 4096, Hard: 4096 },
        { Name: 'core', Soft: 0, Hard: 0 },
        { Name: 'fsize', Soft: 1_073_741_824, Hard: 1_073_741_824 },
      ],
      // As much as the log of a run can need; what a module prints beyond that is gone.
      LogConfig: { Type: 'json-file', Config: { 'max-size': '50m', 'max-file': '2' } },
      Mounts: mirror === null ? [] : [mount],
    },
  };
}
