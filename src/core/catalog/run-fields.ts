import { z } from 'zod';

/** Fields that engines have in common which the gateway runs, as processes or in containers. */

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
    min: z.int().min(0).max(replicasMax).describe('Kept running, also without requests.'),
    max: z.int().min(1).max(replicasMax).describe('Started by demand.'),
  })
  .refine(({ min, max }) => min <= max, { path: ['max'], message: 'must be at least replicas.min' })
  .default({ min: 0, max: 1 })
  .describe('How many may run at once.');
