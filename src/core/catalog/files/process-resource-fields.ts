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
        .describe('Name of the group. Engines whose files use the same name belong together.'),
      swap: z.boolean().default(true).describe('true: one engine of the group runs at a time.'),
      exclusive: z
        .boolean()
        .default(false)
        .describe('true: a start stops every engine outside the group that may be stopped.'),
      persistent: z
        .boolean()
        .default(false)
        .describe('true: engines outside the group do not stop the engines of this group.'),
    },
    groupText,
  )
  .optional()
  .describe('Engines that must not run together. All files of a group must have the same settings for it.');

export const resourceFields = {
  memory_gib: z
    .number()
    .min(0.001)
    .max(1_048_576)
    .optional()
    .describe('Memory of one replica. The sum over all engines is limited by HEADGATE_ENGINE_MEMORY_GIB.'),
  gpus: gpusField,
  group,
  pinned: pinnedField,
};

export function toGroup(given: z.output<typeof group>): EngineGroup | null {
  return given ?? null;
}
