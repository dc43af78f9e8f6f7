import { z } from 'zod';
import { isAllowedImage } from './images.ts';
import { marksOf, runBody, runNetworkLabels } from './run-bodies.ts';
import { gatewayLabel, managedLabel, ownName, type Policy, settingNames } from './rule.ts';

/** Bodies of the docker driver's calls, as the driver sends them. Values that the driver never varies are fixed. */

export type BodyProblem = z.core.$ZodIssue;

/** Labels that the driver sets. Other labels could configure a proxy or another tool on the machine. */
const ownLabel = /^headgate\.(?:managed|fleet|engine|replica|spec|epoch|gpus|kind|port|forced-usage)$/;

export const labels = z
  .record(z.string(), z.string())
  .refine((all) => all[managedLabel] === 'true', `the label ${managedLabel} is missing`)
  // A container with this label may be connected to the network of any engine.
  .refine((all) => !Object.hasOwn(all, gatewayLabel), `only a gateway may have the label ${gatewayLabel}`)
  .refine((all) => Object.keys(all).every((key) => ownLabel.test(key)), 'contains an unknown label');

export const texts = z.array(z.string());
export const networkName = z.string().regex(ownName, 'expected the name of an engine network');
export const image = (policy: Policy) =>
  z.string().refine((name) => isAllowedImage(policy, name), `is not allowed; add it to ${settingNames.images}`);

/** GPU ids, as the Docker engine passes them to nvidia's runtime: no other devices. */
const gpuId = '(?:[a-z0-9.-]{1,128}/gpu=)?[A-Za-z0-9][A-Za-z0-9._:-]{0,127}';
const gpuList = new RegExp(`^${gpuId}(?:,${gpuId})*$`);
const nvidiaVariable = /^NVIDIA_(?:DRIVER_CAPABILITIES|REQUIRE_CUDA|DISABLE_REQUIRE|TF32_OVERRIDE)$/;

/** An environment variable. Variables of nvidia's runtime give devices to containers. */
const variable = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]*=[^\0]*$/, 'expected NAME=value')
  .refine((text) => {
    const [name = '', value = ''] = text.split(/=(.*)/s, 2);
    if (name === 'NVIDIA_VISIBLE_DEVICES') return gpuList.test(value);
    return !/^NVIDIA_/i.test(name) || nvidiaVariable.test(name);
  }, 'may only give GPUs to the container, no other devices');
export const environment = z.array(variable);

/** A path in a container that every reader resolves in the same way. */
const target = z
  .string()
  .regex(/^(?:\/[^/\p{Cc}]+)+\/?$/u, 'expected an absolute path')
  .refine((path) => !/\/\.{1,2}(?:\/|$)/.test(path), 'must not contain "." or ".." as a part');

/**
 * A named volume or a folder on the lists. Folders inside a listed folder are rejected: a container that has the folder
 * can put a link to anywhere into it. The Docker engine follows links on its side, where this program cannot check.
 */
export const mount = ({ binds, volumes }: Policy) =>
  z
    .strictObject({ Type: z.enum(['bind', 'volume']), Source: z.string(), Target: target, ReadOnly: z.boolean() })
    .transform((given, context) => {
      const isBind = given.Type === 'bind';
      const source = isBind ? given.Source.replace(/(?<=[^/])\/+$/, '') : given.Source;
      const found = (isBind ? binds : volumes).find((allowed) => allowed.source === source);
      const list = isBind ? settingNames.binds : settingNames.volumes;
      const message =
        found === undefined
          ? `is not allowed; add ${isBind ? 'this folder itself, not one around it,' : 'it'} to ${list}`
          : `is read-only in ${list}: add :ro to the volume in the engine file`;
      if (found !== undefined && (given.ReadOnly || !found.isReadOnly)) return { ...given, Source: source };
      context.addIssue({ code: 'custom', path: ['Source'], message: `${JSON.stringify(given.Source)} ${message}` });
      return z.NEVER;
    });

const port = /^\d{1,5}\/tcp$/;
const one = (all: object): boolean => Object.keys(all).length === 1;
/** Addresses that everybody can reach, in every notation. */
const everyAddress = ['0.0.0.0', '[::]', '[::ffff:0:0]'];
const address = z
  .union([z.ipv4(), z.ipv6()])
  .refine(
    (text) =>
      !everyAddress.includes(URL.parse(`http://${text.includes(':') ? `[${text}]` : text}`)?.hostname ?? '[::]'),
    'expected one address of the machine',
  );

/** Published ports. The machine chooses the number: a chosen port could take the place of another program's. */
const portBindings = ({ allowsPorts }: Policy) =>
  z
    .record(z.string().regex(port), z.tuple([z.strictObject({ HostIp: address, HostPort: z.literal('') })]))
    .refine(one, 'must have exactly one port')
    .refine(() => allowsPorts, 'ports may be published only if HEADGATE_DOCKER_PORTS of docker-gate is true');

const gpuIds = z.array(z.string().regex(new RegExp(`^${gpuId}$`), 'expected a GPU')).min(1);
const deviceRequests = z.tuple([
  z.union([
    z.strictObject({ Driver: z.literal('cdi'), DeviceIDs: gpuIds }),
    z.strictObject({
      Driver: z.literal('nvidia'),
      Count: z.literal(-1).optional(),
      DeviceIDs: gpuIds.optional(),
      Capabilities: z.tuple([z.tuple([z.literal('gpu')])]),
    }),
  ]),
]);
const deviceFile = (path: RegExp) =>
  z
    .strictObject({
      PathOnHost: z.string().regex(path, 'expected /dev/kfd, then files such as /dev/dri/renderD128'),
      PathInContainer: z.string(),
      CgroupPermissions: z.literal('rw'),
    })
    .refine((device) => device.PathInContainer === device.PathOnHost, 'must have the same path in the container');
/** The device files of AMD's ROCm: the one that all GPUs share, then those of single GPUs. */
const rocmFiles = z.tuple([deviceFile(/^\/dev\/kfd$/)], deviceFile(/^\/dev\/dri\/renderD\d{1,4}$/));
const withoutCheck = z.strictObject({ Test: z.tuple([z.literal('NONE')]) });
const withoutNewPrivileges = z.tuple([z.literal('no-new-privileges')]);

/** Capabilities of Docker's default set that engines do not need. */
export const droppedCapabilities = [
  'AUDIT_WRITE',
  'MKNOD',
  'NET_BIND_SERVICE',
  'NET_RAW',
  'SETFCAP',
  'SETPCAP',
  'SYS_CHROOT',
] as const;
export const logOptions = z.strictObject({ 'max-size': z.literal('10m'), 'max-file': z.literal('3') });
export const logDriver = z.literal('json-file');

/** Only limits of memory: a higher number of files or processes could exhaust the machine. */
export const ulimits = z
  .array(
    z
      .strictObject({ Name: z.enum(['memlock', 'stack']), Soft: z.int().min(-1), Hard: z.int().min(-1) })
      .refine(({ Soft: soft, Hard: hard }) => soft === hard, 'must have the same soft and hard limit'),
  )
  .max(2);

/** Numbers of CPUs or NUMA nodes, and ranges of them. */
const cpuset = z
  .string()
  .regex(/^\d{1,4}(?:-\d{1,4})?(?:,\d{1,4}(?:-\d{1,4})?)*$/, 'expected numbers such as 0-15,32-47');

const hostConfig = (policy: Policy) =>
  z.strictObject({
    NetworkMode: networkName,
    RestartPolicy: z.strictObject({ Name: z.literal('no') }),
    Init: z.literal(true),
    IpcMode: z.literal('private'),
    SecurityOpt: withoutNewPrivileges,
    CapDrop: z
      .array(z.enum(droppedCapabilities))
      .refine(
        (given) => droppedCapabilities.every((name) => given.includes(name)),
        'must drop all capabilities that engines do not need',
      ),
    LogConfig: z.strictObject({ Type: logDriver, Config: logOptions }),
    Mounts: z.array(mount(policy)),
    ShmSize: z.int().min(0).optional(),
    Memory: z.int().min(0).optional(),
    MemorySwap: z.int().min(0).optional(),
    Ulimits: ulimits.optional(),
    CpusetCpus: cpuset.optional(),
    CpusetMems: cpuset.optional(),
    Devices: rocmFiles.optional(),
    PortBindings: portBindings(policy).optional(),
    DeviceRequests: deviceRequests.optional(),
  });

const engineBody = (policy: Policy) =>
  z.strictObject({
    Image: image(policy),
    Cmd: texts,
    Entrypoint: texts.optional(),
    Env: environment,
    Labels: labels,
    ExposedPorts: z.record(z.string().regex(port), z.strictObject({})).refine(one, 'must have exactly one port'),
    StopSignal: z.literal('SIGTERM'),
    Healthcheck: withoutCheck,
    HostConfig: hostConfig(policy),
  });

const probeLabels = z.strictObject({
  [managedLabel]: z.literal('true'),
  'headgate.fleet': z.string(),
  'headgate.probe': z.literal('true'),
});

/**
 * A short-lived container that queries the GPUs. It sees the machine's process ids, to name the programs that use GPU
 * memory, so it may only be nvidia-smi, without network and mounts.
 */
const probeBody = (policy: Policy) =>
  z.strictObject({
    Image: image(policy),
    Entrypoint: z.tuple([z.literal('nvidia-smi')]),
    Cmd: z.union([
      z.tuple([z.literal('-L')]),
      z.tuple([
        z.string().regex(/^--query-(?:gpu|compute-apps)=[a-z._,]+$/),
        z.literal('--format=csv,noheader,nounits'),
      ]),
    ]),
    Env: environment.refine(
      (all) => all.every((text) => text.startsWith('NVIDIA_')),
      'may only have variables that start with NVIDIA_',
    ),
    Labels: probeLabels,
    NetworkDisabled: z.literal(true),
    Healthcheck: withoutCheck,
    HostConfig: z.strictObject({
      AutoRemove: z.literal(true),
      NetworkMode: z.literal('none'),
      SecurityOpt: withoutNewPrivileges,
      PidMode: z.enum(['', 'host']),
      DeviceRequests: deviceRequests.optional(),
    }),
  });

/** Body of POST /containers/create. Strict, so that unknown fields (Privileged, Devices…) are rejected. */
export const containerBody = (policy: Policy, body: unknown): z.ZodType => {
  const marks = marksOf(body);
  if (marks !== null) return runBody(policy, marks);
  return isProbe(body) ? probeBody(policy) : engineBody(policy);
};

export function isProbe(body: unknown): boolean {
  return (body as { NetworkDisabled?: unknown } | null)?.NetworkDisabled === true;
}

/** Body of POST /networks/create. Options are rejected: they would take over interfaces of the machine. */
export const networkBody = (body: unknown): z.ZodType =>
  z.strictObject({
    Name: networkName,
    CheckDuplicate: z.literal(true),
    Driver: z.literal('bridge'),
    Attachable: z.literal(false),
    Labels: marksOf(body) === null ? labels : runNetworkLabels,
  });

const containerName = z.string().regex(/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$/);

/** Body of POST /networks/{id}/connect. */
export const connectBody = () =>
  z.strictObject({ Container: containerName, EndpointConfig: z.strictObject({ GwPriority: z.literal(-1) }) });

/** Body of POST /networks/{id}/disconnect. */
export const disconnectBody = () => z.strictObject({ Container: containerName, Force: z.literal(true) });
