import { z } from 'zod';

/** Answers of `/v1/admin/unused-storage`. */

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
