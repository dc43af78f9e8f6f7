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
        .regex(/^[^\0]*$/, 'must not contain a NUL character'),
    )
    .default({})
    .describe(
      'Environment of the program. ${NAME} is replaced by this variable of the gateway. Secrets must be given this way.',
    ),
};

export const replicasMax = 1000;

export const replicasField = z
  .strictObject({
    min: z.int().min(0).max(replicasMax).default(0).describe('Replicas that run even without requests.'),
    max: z
      .int()
      .min(1)
      .max(replicasMax)
      .optional()
      .describe('Maximum number of replicas, started on demand. Default: min, but at least 1.'),
  })
  .refine(({ min, max }) => max === undefined || min <= max, {
    path: ['max'],
    message: 'must be at least replicas.min, or absent',
  })
  .transform(({ min, max }) => ({ min, max: max ?? Math.max(min, 1) }))
  .prefault({})
  .describe('Number of replicas that run at once.');

/** Limits of vLLM's own queue, named as vLLM names them. */
export const queueFields = {
  max_num_queued_reqs: z
    .int()
    .min(1)
    .max(1_000_000)
    .optional()
    .describe(
      'Most requests that one replica of vLLM runs and queues; it rejects more, and they go to another replica. A request with n counts n times.',
    ),
  max_num_queued_tokens: z
    .int()
    .min(1)
    .max(1_000_000_000)
    .optional()
    .describe('Prompt tokens that one replica of vLLM has yet to read at which it rejects further requests.'),
};

export const gpusField = z
  .strictObject({
    count: z.int().min(1).max(64).describe('GPUs of one replica, all on one host and exclusive to this replica.'),
    memory_gib: z
      .number()
      .min(1)
      .max(4096)
      .optional()
      .describe('Minimum memory of each GPU. An "80 GB" card reports slightly less than 80.'),
    profile: z
      .string()
      .min(1)
      .max(128)
      .optional()
      .describe('Part of the product name of the GPU, such as H100. Case does not matter.'),
  })
  .optional()
  .describe('GPUs that each replica needs. Without this field, replicas get no GPU.');

export const pinnedField = z
  .boolean()
  .default(false)
  .describe('true: replicas are never stopped to make room for another model.');
