import { z } from 'zod';

/** Answers about the health of a gateway. */

/** Answer of `/readyz`: 200 for `ready`, 503 for `not_ready`. Absent lists are empty. */
export const readinessSchema = z.object({
  status: z.enum(['ready', 'not_ready']),
  /** Names of the stage and of parts that keep the gateway from accepting traffic. */
  not_ready: z.array(z.string()).readonly().optional(),
  /** Names of problems that an operator has to fix, whether or not the gateway accepts traffic. */
  warnings: z.array(z.string()).readonly().optional(),
});

export type ReadinessAnswer = z.input<typeof readinessSchema>;
