import { z } from 'zod';

/** Fields shared by engines that the gateway runs, as processes or in containers. */

export const seconds = (max: number) => z.int().min(1).max(max);

export const variableName = z
  .string()
  .regex(/^[A-Za-z_][A-Za-z0-9_]*$/, 'expected the name of an environment variable');

export const environmentFields = {
  env: z
    .record(
      variableName,
      z
        .string()
        .max(32_768)
        .regex(/^[^\0]*$/, 'a NUL is not allowed here'),
    )
    .default({})
    .describe('Environment of the program. ${NAME} stands for that variable of the gateway; secrets only so.'),
};

const replicasMax = 1000;

export const replicasField = z
  .strictObject({
    min: z.int().min(0).max(replicasMax).default(0).describe('Kept running, also without requests.'),
    max: z.int().min(1).max(replicasMax).optional().describe('Started by demand; min if absent, at least 1.'),
  })
  .refine(({ min, max }) => max === undefined || min <= max, {
    path: ['max'],
    message: 'must be at least replicas.min, or left out',
  })
  .transform(({ min, max }) => ({ min, max: max ?? Math.max(min, 1) }))
  .prefault({})
  .describe('How many may run at once.');

export const gpusField = z
  .strictObject({
    count: z.int().min(1).max(64).describe('Devices of one replica, all on one host; no other replica gets them.'),
    memory_gib: z
      .number()
      .min(1)
      .max(4096)
      .optional()
      .describe('Memory that each device must have at least. An "80 GB" card reports a little less than 80.'),
    profile: z
      .string()
      .min(1)
      .max(128)
      .optional()
      .describe('Part of the product name, such as H100; case does not matter.'),
  })
  .optional()
  .describe('What a replica needs of a host; without it, it gets no GPU of its own.');

export const pinnedField = z.boolean().default(false).describe('true: never stopped to make room for another model.');
