import { z } from 'zod';
import { wholeListOf } from './lists.ts';

/** Answers of `/v1/admin/hosts` and `/v1/admin/unused-storage`. */

const bytesOrNull = z.int().nullable();

/** A host with everything that runs there. */
export const hostSchema = z
  .object({
    name: z.string(),
    object: z.literal('host'),
    reachable: z.boolean(),
    trouble: z.string().nullable().meta({ description: 'Why the host is unreachable, or what is unknown about it' }),
    pools: z.array(z.string()).meta({ description: 'Pools of hosts that engine files can name' }),
    gpus: z.array(
      z.object({
        id: z.string(),
        memory_bytes: bytesOrNull.meta({ description: 'Memory of the GPU in bytes; null if unknown' }),
        profile: z.string().nullable().meta({ description: 'Product name; null if unknown' }),
        used_by: z
          .object({ engine: z.string().nullable(), replica: z.string().nullable(), stranger: z.string().nullable() })
          .nullable()
          .meta({ description: 'Replica, or name of an entry in `strangers`; null if the GPU is free' }),
      }),
    ),
    memory_bytes: bytesOrNull.meta({ description: 'Memory for all processes in bytes; null if the host runs none' }),
    replicas: z.array(
      z.object({
        engine: z.string(),
        replica: z.string(),
        state: z.string(),
        memory_bytes: bytesOrNull.meta({ description: 'Reserved host memory in bytes; null if none is set' }),
      }),
    ),
    strangers: z
      .array(
        z.object({
          name: z.string(),
          engine: z.string().nullable(),
          gpus: z.array(z.string()),
          ended_by: z.string().meta({
            example: 'docker rm --force headgate-old-1',
            description: 'Command that ends it, for a shell on the host',
          }),
        }),
      )
      .meta({
        description:
          'Orphaned containers and processes, whose engine file was deleted. They keep their GPUs until the file ' +
          'exists again, or until `ended_by` runs on the host',
      }),
  })
  .meta({ id: 'Host' });

export type HostAnswer = z.infer<typeof hostSchema>;

/** All hosts. */
export const hostListSchema = wholeListOf(hostSchema, 'HostList');

export type HostListAnswer = z.infer<typeof hostListSchema>;

/** An image or weights that no engine file names. */
const unusedItemSchema = z
  .object({
    object: z.literal('unused_item'),
    type: z.enum(['image', 'weights']),
    name: z.string().meta({ example: 'acme/chat', description: 'Image with tag or digest, or repository' }),
    host: z.string().meta({ description: 'Name of the host; `local` is the machine of the gateway' }),
    bytes: z.int().meta({ description: 'Size on the disk; for an image with layers that other images share' }),
  })
  .meta({ id: 'UnusedItem' });

export type UnusedItemAnswer = z.infer<typeof unusedItemSchema>;

/** Unused images and weights. */
export const unusedStorageSchema = z.object({ object: z.literal('list'), data: z.array(unusedItemSchema) });
