import { z } from 'zod';

/** What an operator lets containers have beyond what every engine has. */
export interface Policy {
  /** Whether an image, with its tag or digest, may be pulled and run. */
  readonly isAllowedImage: (image: string) => boolean;
  /** Whether a folder of the machine may be mounted. Named volumes always may. */
  readonly isAllowedBind: (path: string) => boolean;
  /** Whether containers may publish ports. */
  readonly allowsPorts: boolean;
}

export type BodyProblem = z.core.$ZodIssue;

/** Also the label of the same meaning in calls.ts; on everything that Headgate makes. */
const managed = 'headgate.managed';

const labels = z
  .record(z.string(), z.string())
  .refine((all) => managed in all, `the label ${managed} is missing`)
  // A container of a gateway may be joined to any engine's network.
  .refine((all) => !('headgate.gateway' in all), 'only a gateway bears this label');

const texts = z.array(z.string());
const networkName = z.string().regex(/^headgate-[a-zA-Z0-9_.-]{1,200}$/, 'expected a network of Headgate');
const volumeName = /^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,254}$/;

/** `source:target` or `source:target:ro`, with a named volume or an allowed folder. */
const bind = ({ isAllowedBind }: Policy) =>
  z.string().refine((text) => {
    const [source = '', target = '', mode = 'rw', ...more] = text.split(':');
    if (more.length > 0 || !/^(ro|rw)$/.test(mode)) return false;
    // A path with dots could lead out of the folder that is allowed.
    if (!target.startsWith('/') || `${source}${target}`.includes('..')) return false;
    return source.startsWith('/') ? isAllowedBind(source) : volumeName.test(source);
  }, 'expected a named volume, or a folder among HEADGATE_DOCKER_BINDS');

const portBindings = ({ allowsPorts }: Policy) =>
  z
    .record(
      z.string().regex(/^\d{1,5}\/tcp$/),
      z.array(z.strictObject({ HostIp: z.string().min(1), HostPort: z.string() })),
    )
    .refine((ports) => allowsPorts || Object.keys(ports).length === 0, 'ports are not published here');

const hostConfig = (policy: Policy) =>
  z.strictObject({
    NetworkMode: networkName,
    Binds: z.array(bind(policy)).optional(),
    PortBindings: portBindings(policy).optional(),
    DeviceRequests: z
      .array(
        z.strictObject({
          Driver: z.enum(['', 'nvidia', 'cdi']).optional(),
          Count: z.int().optional(),
          DeviceIDs: texts.optional(),
          Capabilities: z.array(texts).optional(),
          Options: z.record(z.string(), z.string()).optional(),
        }),
      )
      .optional(),
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
    SecurityOpt: z.array(z.enum(['no-new-privileges', 'no-new-privileges:true'])).optional(),
  });

/** Body of POST /containers/create: strict, so that a field which nobody thought of (Privileged, PidMode…) is refused. */
export const containerBody = (policy: Policy) =>
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
  });
