import { z } from 'zod';

/** Answers of a manager of a swarm: the fields that are read. Engine API 1.41 (20.10) and later. */

/** A service. A change sends the whole specification back, so unknown fields are kept. */
export const serviceSchema = z.object({
  ID: z.string(),
  Version: z.object({ Index: z.int() }),
  Spec: z.looseObject({
    Name: z.string(),
    Labels: z.record(z.string(), z.string()).nullish(),
    TaskTemplate: z.looseObject({ ContainerSpec: z.looseObject({ Image: z.string().nullish() }).nullish() }).nullish(),
    Mode: z.looseObject({ Replicated: z.looseObject({ Replicas: z.int().nullish() }).nullish() }).nullish(),
  }),
});
export const servicesSchema = z.array(serviceSchema);
export type SwarmService = z.output<typeof serviceSchema>;

const genericResourcesSchema = z
  .array(
    z.object({
      NamedResourceSpec: z.object({ Kind: z.string(), Value: z.string() }).nullish(),
      DiscreteResourceSpec: z.object({ Kind: z.string(), Value: z.int() }).nullish(),
    }),
  )
  .nullish();

export const taskSchema = z.object({
  ID: z.string(),
  /** Absent for containers that somebody attached to an overlay network. */
  ServiceID: z.string().nullish(),
  NodeID: z.string().nullish(),
  CreatedAt: z.string(),
  DesiredState: z.string(),
  Status: z.object({
    State: z.string(),
    Message: z.string().nullish(),
    /** '' while nothing is wrong. */
    Err: z
      .string()
      .nullish()
      .transform((said) => said ?? ''),
    ContainerStatus: z.object({ ContainerID: z.string().nullish(), ExitCode: z.int().nullish() }).nullish(),
    PortStatus: z
      .object({
        Ports: z.array(z.object({ TargetPort: z.int().nullish(), PublishedPort: z.int().nullish() })).nullish(),
      })
      .nullish(),
  }),
  Spec: z
    .object({
      Resources: z.object({ Reservations: z.object({ GenericResources: genericResourcesSchema }).nullish() }).nullish(),
    })
    .nullish(),
  NetworksAttachments: z
    .array(
      z.object({
        Network: z.object({ Spec: z.object({ Name: z.string() }) }),
        Addresses: z.array(z.string()).nullish(),
      }),
    )
    .nullish(),
});
export const tasksSchema = z.array(taskSchema);
export type SwarmTask = z.output<typeof taskSchema>;

export const nodeSchema = z.object({
  ID: z.string(),
  Spec: z.object({ Availability: z.string().nullish() }).nullish(),
  Status: z.object({ State: z.string(), Addr: z.string().nullish() }),
  ManagerStatus: z.object({ Addr: z.string().nullish() }).nullish(),
  Description: z
    .object({
      Hostname: z.string().nullish(),
      Resources: z.object({ GenericResources: genericResourcesSchema }).nullish(),
    })
    .nullish(),
});
export const nodesSchema = z.array(nodeSchema);
export type SwarmNode = z.output<typeof nodeSchema>;

export const secretsSchema = z.array(
  z.object({
    ID: z.string(),
    Spec: z.object({ Name: z.string(), Labels: z.record(z.string(), z.string()).nullish() }),
  }),
);
export type SwarmSecret = z.output<typeof secretsSchema>[number];

export const imageSchema = z.object({
  Config: z.object({ Entrypoint: z.array(z.string()).nullish() }).nullish(),
});
