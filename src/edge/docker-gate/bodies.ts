import { z } from 'zod';
import { gatewayLabel, managedLabel, type Policy } from './rule.ts';

export type BodyProblem = z.core.$ZodIssue;

export const labels = z
  .record(z.string(), z.string())
  .refine((all) => managedLabel in all, `the label ${managedLabel} is missing`)
  // A container of a gateway may be joined to any engine's network.
  .refine((all) => !(gatewayLabel in all), 'only a gateway bears this label');

export const texts = z.array(z.string());
export const networkName = z.string().regex(/^headgate-[a-zA-Z0-9_.-]{1,200}$/, 'expected a network of Headgate');
const volumeName = /^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$/;

/** Named volumes, and folders that are allowed. A path with dots could lead out of one. */
export const mount = ({ isAllowedBind }: Policy) =>
  z
    .strictObject({
      Type: z.enum(['bind', 'volume']),
      Source: z.string(),
      Target: z.string().startsWith('/'),
      ReadOnly: z.boolean(),
    })
    .refine(({ Source: source, Target: target }) => !`${source}/${target}`.includes('..'), 'dots lead elsewhere')
    .refine(
      ({ Type: type, Source: source }) => (type === 'bind' ? isAllowedBind(source) : volumeName.test(source)),
      'expected a named volume, or a folder among HEADGATE_DOCKER_BINDS',
    );

const portBindings = ({ allowsPorts }: Policy) =>
  z
    .record(
      z.string().regex(/^\d{1,5}\/tcp$/),
      z.array(z.strictObject({ HostIp: z.string().min(1), HostPort: z.string() })),
    )
    .refine((ports) => allowsPorts || Object.keys(ports).length === 0, 'ports are not published here');

const deviceRequests = z.array(
  z.strictObject({
    Driver: z.enum(['', 'nvidia', 'cdi']).optional(),
    Count: z.int().optional(),
    DeviceIDs: texts.optional(),
    Capabilities: z.array(texts).optional(),
    Options: z.record(z.string(), z.string()).optional(),
  }),
);
const securityOptions = z.array(z.enum(['no-new-privileges', 'no-new-privileges:true']));

const hostConfig = (policy: Policy) =>
  z.strictObject({
    NetworkMode: networkName,
    Mounts: z.array(mount(policy)).optional(),
    PortBindings: portBindings(policy).optional(),
    DeviceRequests: deviceRequests.optional(),
    Runtime: z.enum(['nvidia']).optional(),
    ShmSize: z.int().min(0).optional(),
    Memory: z.int().min(0).optional(),
    MemorySwap: z.int().min(-1).optional(),
    NanoCpus: z.int().min(0).optional(),
    PidsLimit: z.int().optional(),
    Ulimits: z.array(z.strictObject({ Name: z.string(), Soft: z.int(), Hard: z.int() })).optional(),
    IpcMode: z.enum(['', 'private', 'shareable']).optional(),
    Init: z.boolean().optional(),
    ReadonlyRootfs: z.boolean().optional(),
    Tmpfs: z.record(z.string(), z.string()).optional(),
    AutoRemove: z.boolean().optional(),
    RestartPolicy: z.strictObject({ Name: z.string(), MaximumRetryCount: z.int().optional() }).optional(),
    LogConfig: z
      .strictObject({ Type: z.enum(['json-file', 'local']), Config: z.record(z.string(), z.string()) })
      .optional(),
    CapDrop: texts.optional(),
    SecurityOpt: securityOptions.optional(),
  });

const engineBody = (policy: Policy) =>
  z.strictObject({
    Image: z.string().refine(policy.isAllowedImage, 'is not among HEADGATE_DOCKER_IMAGES'),
    Entrypoint: texts.optional(),
    Cmd: texts.optional(),
    Env: texts.optional(),
    Labels: labels,
    ExposedPorts: z.record(z.string().regex(/^\d{1,5}\/tcp$/), z.strictObject({})).optional(),
    Hostname: z.string().optional(),
    Healthcheck: z.strictObject({ Test: z.array(z.literal('NONE')) }).optional(),
    StopSignal: z.string().optional(),
    StopTimeout: z.int().optional(),
    User: z.string().optional(),
    WorkingDir: z.string().optional(),
    AttachStdin: z.literal(false).optional(),
    AttachStdout: z.boolean().optional(),
    AttachStderr: z.boolean().optional(),
    OpenStdin: z.literal(false).optional(),
    Tty: z.literal(false).optional(),
    HostConfig: hostConfig(policy),
  });

/**
 * A container that asks GPUs what they are and is gone in a moment. To name the programs that hold memory there it sees
 * the machine's process ids, so it is nothing but nvidia-smi, without network and mounts.
 */
const probeBody = ({ isAllowedImage }: Policy) =>
  z.strictObject({
    Image: z.string().refine(isAllowedImage, 'is not among HEADGATE_DOCKER_IMAGES'),
    Entrypoint: z.tuple([z.literal('nvidia-smi')]),
    Cmd: z.array(z.string().regex(/^--(query-gpu|query-compute-apps|format)=[a-z._,]+$/)),
    Env: z.array(z.string().startsWith('NVIDIA_')),
    Labels: labels.refine((all) => 'headgate.probe' in all, 'the label headgate.probe is missing'),
    NetworkDisabled: z.literal(true),
    Healthcheck: z.strictObject({ Test: z.array(z.literal('NONE')) }),
    HostConfig: z.strictObject({
      AutoRemove: z.literal(true),
      NetworkMode: z.literal('none'),
      SecurityOpt: securityOptions,
      PidMode: z.enum(['', 'host']),
      DeviceRequests: deviceRequests.optional(),
    }),
  });

/** Body of POST /containers/create: strict, so that a field which nobody thought of (Privileged, Devices…) is refused. */
export const containerBody = (policy: Policy, body: unknown) =>
  isProbe(body) ? probeBody(policy) : engineBody(policy);

function isProbe(body: unknown): boolean {
  return (body as { NetworkDisabled?: unknown } | null)?.NetworkDisabled === true;
}

/** Body of POST /networks/create. */
export const networkBody = () =>
  z.strictObject({
    Name: networkName,
    Driver: z.literal('bridge'),
    CheckDuplicate: z.boolean().optional(),
    Internal: z.boolean().optional(),
    Attachable: z.boolean().optional(),
    EnableIPv6: z.boolean().optional(),
    Labels: labels,
    Options: z.record(z.string().startsWith('com.docker.network.bridge.'), z.string()).optional(),
  });

/** Body of POST /networks/{id}/connect and …/disconnect. */
export const networkConnectBody = () =>
  z.strictObject({
    Container: z.string().regex(/^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$/),
    Force: z.boolean().optional(),
    EndpointConfig: z.strictObject({ GwPriority: z.int() }).optional(),
  });
