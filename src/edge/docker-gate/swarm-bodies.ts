import { z } from 'zod';
import {
  droppedCapabilities,
  environment,
  image,
  labels,
  logDriver,
  logOptions,
  mount,
  networkName,
  texts,
  ulimits,
} from './bodies.ts';
import { ownName, type Policy } from './rule.ts';

/** Bodies of the swarm driver's calls, as the driver sends them. Values that the driver never varies are fixed. */

const swarmId = z.string().regex(/^[a-z0-9]{20,40}$/, 'expected the id of a swarm object');
const serviceName = z.string().regex(ownName, 'expected the name of a replica');
const stopGraceNs = 10_000_000_000;

/** A mount of a task. Templates are rejected: tasks expand them, which could insert dots into the path. */
const taskMount = (policy: Policy) =>
  mount(policy).refine(
    ({ Source: source, Target: target }) => !/[{}]/.test(source + target),
    'must not contain templates such as {{.Node.Hostname}}',
  );

const sharedMemory = z.strictObject({
  Type: z.literal('tmpfs'),
  Target: z.literal('/dev/shm'),
  TmpfsOptions: z.strictObject({ SizeBytes: z.int().min(0), Mode: z.literal(0o1777) }),
});

const secretReference = z.strictObject({
  SecretID: swarmId,
  SecretName: serviceName,
  // The file must be a plain name: a path would lead out of the folder of secrets.
  File: z.strictObject({
    Name: z.string().regex(/^[a-zA-Z_]\w{0,254}$/, 'expected the name of an environment variable'),
    UID: z.literal('0'),
    GID: z.literal('0'),
    Mode: z.literal(0o444),
  }),
});

const containerSpec = (policy: Policy) =>
  z.strictObject({
    Image: image(policy),
    Command: texts.optional(),
    Args: texts,
    Env: environment,
    Mounts: z.array(z.discriminatedUnion('Type', [taskMount(policy), sharedMemory])),
    Secrets: z.array(secretReference).optional(),
    StopSignal: z.literal('SIGTERM'),
    StopGracePeriod: z.literal(stopGraceNs),
    Healthcheck: z.strictObject({ Test: z.tuple([z.literal('NONE')]) }),
    Init: z.literal(true),
    CapabilityDrop: z
      .array(z.enum(droppedCapabilities.map((name) => `CAP_${name}` as const)))
      .refine(
        (given) => droppedCapabilities.every((name) => given.includes(`CAP_${name}`)),
        'must drop all capabilities that engines do not need',
      ),
    Privileges: z.strictObject({ NoNewPrivileges: z.literal(true) }),
    Ulimits: ulimits.optional(),
  });

const genericResource = z.strictObject({
  DiscreteResourceSpec: z.strictObject({ Kind: z.string().regex(/^[\w.-]{1,200}$/), Value: z.int().min(1) }),
});

const taskTemplate = (policy: Policy) =>
  z.strictObject({
    ContainerSpec: containerSpec(policy),
    Resources: z.strictObject({
      Limits: z.strictObject({ MemoryBytes: z.int().min(0) }).optional(),
      Reservations: z.strictObject({ GenericResources: z.tuple([genericResource]) }).optional(),
    }),
    RestartPolicy: z.strictObject({ Condition: z.literal('none') }),
    Placement: z.strictObject({ Constraints: texts }),
    LogDriver: z.strictObject({ Name: logDriver, Options: logOptions }),
    Networks: z.tuple([z.strictObject({ Target: networkName })]),
  });

/** Published ports. The node chooses the number: a chosen port could take the place of another service's. */
const endpointSpec = ({ allowsPorts }: Policy) =>
  z.strictObject({
    Mode: z.literal('dnsrr'),
    Ports: z
      .tuple([
        z.strictObject({
          Protocol: z.literal('tcp'),
          TargetPort: z.int().min(1).max(65_535),
          PublishMode: z.literal('host'),
        }),
      ])
      .refine(() => allowsPorts, 'ports may be published only if HEADGATE_DOCKER_PORTS of docker-gate is true')
      .optional(),
  });

const modeOf = (replicas: number) => z.strictObject({ Replicated: z.strictObject({ Replicas: z.literal(replicas) }) });

/** Body of POST /services/create. One task, because the driver creates one service per replica. */
export const serviceBody = (policy: Policy) =>
  z.strictObject({
    Name: serviceName,
    Labels: labels,
    TaskTemplate: taskTemplate(policy),
    Mode: modeOf(1),
    EndpointSpec: endpointSpec(policy),
  });

/**
 * Body of POST /services/{id}/update, which ends the service's task. All other fields are compared with the existing
 * service, because managers add their own fields to it.
 */
export const serviceEndBody = () => z.looseObject({ Mode: modeOf(0) });

/**
 * Body of POST /secrets/create. Drivers and templates are rejected, because they read data that the caller does not
 * know.
 */
export const secretBody = () => z.strictObject({ Name: serviceName, Labels: labels, Data: z.base64() });

/** Body of POST /networks/create for an engine's network. */
export const overlayBody = () =>
  z.strictObject({
    Name: networkName,
    CheckDuplicate: z.literal(true),
    Driver: z.literal('overlay'),
    Attachable: z.literal(true),
    Labels: labels,
  });
