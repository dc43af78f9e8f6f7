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
} from './bodies.ts';
import { ownName, type Policy } from './rule.ts';

/** Bodies of the swarm driver's calls: what it sends, with values that it never varies fixed. */

const swarmId = z.string().regex(/^[a-z0-9]{20,40}$/, 'expected an id of a swarm');
const serviceName = z.string().regex(ownName, 'expected a name of a replica');
const stopGraceNs = 10_000_000_000;

/** As a container's; and a task's mounts are templates, which could write the dots that were not there. */
const taskMount = (policy: Policy) =>
  mount(policy).refine(
    ({ Source: source, Target: target }) => !/[{}]/.test(source + target),
    'templates lead elsewhere',
  );

const sharedMemory = z.strictObject({
  Type: z.literal('tmpfs'),
  Target: z.literal('/dev/shm'),
  TmpfsOptions: z.strictObject({ SizeBytes: z.int().min(0), Mode: z.literal(0o1777) }),
});

const secretReference = z.strictObject({
  SecretID: swarmId,
  SecretName: serviceName,
  // A path would lead out of the folder of secrets.
  File: z.strictObject({
    Name: z.string().regex(/^[a-zA-Z_]\w{0,254}$/, 'expected the name of a variable'),
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
      .refine((given) => droppedCapabilities.every((name) => given.includes(`CAP_${name}`)), 'all of them are dropped'),
    Privileges: z.strictObject({ NoNewPrivileges: z.literal(true) }),
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

/** On a port that the node chooses: one of its own choice could stand before another service. */
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
      .refine(() => allowsPorts, 'ports are not published here (HEADGATE_DOCKER_PORTS)')
      .optional(),
  });

const modeOf = (replicas: number) => z.strictObject({ Replicated: z.strictObject({ Replicas: z.literal(replicas) }) });

/** Body of POST /services/create: one task, as the driver makes one service for each replica. */
export const serviceBody = (policy: Policy) =>
  z.strictObject({
    Name: serviceName,
    Labels: labels,
    TaskTemplate: taskTemplate(policy),
    Mode: modeOf(1),
    EndpointSpec: endpointSpec(policy),
  });

/**
 * Body of POST /services/{id}/update, which ends the service's task. The rest is compared with the service that is
 * there: managers write fields of their own into it.
 */
export const serviceEndBody = () => z.looseObject({ Mode: modeOf(0) });

/** Body of POST /secrets/create, without drivers and templates, which read what the caller does not know. */
export const secretBody = () => z.strictObject({ Name: serviceName, Labels: labels, Data: z.base64() });

/** Body of POST /networks/create for the network of an engine. */
export const overlayBody = () =>
  z.strictObject({
    Name: networkName,
    CheckDuplicate: z.literal(true),
    Driver: z.literal('overlay'),
    Attachable: z.literal(true),
    Labels: labels,
  });
