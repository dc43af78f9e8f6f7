import { z } from 'zod';

/** Answers of a Docker engine: the fields that are read. Engine API 1.41 (20.10) and later. */

export const versionSchema = z.object({
  ApiVersion: z.string().regex(/^\d+\.\d+$/),
  MinAPIVersion: z
    .string()
    .regex(/^\d+\.\d+$/)
    .optional(),
  Version: z.string().optional(),
});

export const infoSchema = z.object({
  /** Id of the engine, made when it was installed. */
  ID: z.string().nullish(),
  /** Host name of its machine. */
  Name: z.string().nullish(),
  /** Folder of images and containers. */
  DockerRootDir: z.string().nullish(),
  Runtimes: z.record(z.string(), z.unknown()).nullish(),
  GenericResources: z
    .array(
      z.object({
        NamedResourceSpec: z.object({ Kind: z.string(), Value: z.string() }).nullish(),
      }),
    )
    .nullish(),
  /** Since API 1.50, engine 28.2. */
  DiscoveredDevices: z.array(z.object({ Source: z.string().nullish(), ID: z.string() })).nullish(),
});
export type DockerInfo = z.output<typeof infoSchema>;

const endpointSchema = z.object({ IPAddress: z.string().nullish() });

export const summarySchema = z.object({
  Id: z.string(),
  Names: z.array(z.string()).nullish(),
  State: z.string(),
  Labels: z.record(z.string(), z.string()).nullish(),
  Ports: z
    .array(
      z.object({
        IP: z.string().nullish(),
        PrivatePort: z.int(),
        PublicPort: z.int().nullish(),
        Type: z.string().nullish(),
      }),
    )
    .nullish(),
  NetworkSettings: z.object({ Networks: z.record(z.string(), endpointSchema).nullish() }).nullish(),
});
export const summariesSchema = z.array(summarySchema);
export type ContainerSummary = z.output<typeof summarySchema>;

export const detailSchema = z.object({
  Id: z.string(),
  State: z.object({
    Status: z.string(),
    ExitCode: z.int().nullish(),
    OOMKilled: z.boolean().nullish(),
    Error: z.string().nullish(),
  }),
  NetworkSettings: z.object({ Networks: z.record(z.string(), endpointSchema).nullish() }).nullish(),
});
export type ContainerDetail = z.output<typeof detailSchema>;

/** Absent while a container does not run, and for containers without a network of their own. */
export const statsSchema = z.object({
  networks: z.record(z.string(), z.object({ rx_bytes: z.number() })).nullish(),
});

export const imageSchema = z.object({ Size: z.int() });

export const networkSchema = z.object({
  Id: z.string(),
  Labels: z.record(z.string(), z.string()).nullish(),
  Containers: z.record(z.string(), z.unknown()).nullish(),
});
export type NetworkDetail = z.output<typeof networkSchema>;

export const networksSchema = z.array(z.object({ Id: z.string(), Name: z.string(), Created: z.string().nullish() }));
export type NetworkSummary = z.output<typeof networksSchema>[number];

/** One line of a pull's answer. */
export const pullLineSchema = z.object({
  id: z.string().nullish(),
  status: z.string().nullish(),
  progressDetail: z.object({ current: z.number().nullish(), total: z.number().nullish() }).nullish(),
  error: z.string().nullish(),
});
