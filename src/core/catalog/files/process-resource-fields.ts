import { z } from 'zod';
import type { EngineGroup } from './engine-definition.ts';
import { gpusField, pinnedField } from './run-fields.ts';

/**
 * Fields for the resources of processes on one machine; processes that do not fit together make room for each other.
 */

const groupText = 'expected a group such as {name: large}';

const group = z
  .strictObject(
    {
      name: z
        .string()
        .min(1)
        .max(128)
        .regex(/^[^\p{Cc}\p{Cs}]*$/u, 'control characters are not allowed here')
        .describe('Engines of processes whose files name the same group are in it.'),
      swap: z.boolean().default(true).describe('true: one engine of the group runs at a time.'),
      exclusive: z
        .boolean()
        .default(false)
        .describe('true: when it starts, every engine outside the group is stopped that may be.'),
      persistent: z.boolean().default(false).describe('true: engines outside the group do not stop it.'),
    },
    groupText,
  )
  .optional()
  .describe('Engines that are not to run together; all files of a group say the same of it.');

export const resourceFields = {
  memory_gib: z
    .number()
    .min(0.001)
    .max(1_048_576)
    .optional()
    .describe('What a replica takes of the memory that engines may take together: HEADGATE_ENGINE_MEMORY_GIB.'),
  gpus: gpusField,
  group,
  pinned: pinnedField,
};

export function toGroup(given: z.output<typeof group>): EngineGroup | null {
  return given ?? null;
}
