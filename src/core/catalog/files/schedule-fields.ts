import { z } from 'zod';
import type { ScheduleEntry } from './engine-definition.ts';
import { cronProblem, timezoneProblem } from './replica-schedule.ts';
import { type replicasField, replicasMax } from './run-fields.ts';
import type { FileProblem } from './zod-problems.ts';

/** The field `schedule` of engines that the gateway runs. */

const entriesMax = 100;

const checkedText = (charsMax: number, problemOf: (text: string) => string | null) =>
  z
    .string()
    .max(charsMax)
    .superRefine((text, context) => {
      const message = problemOf(text);
      if (message !== null) context.addIssue({ code: 'custom', message });
    });

const count = z.int().min(0).max(replicasMax).optional();

export const scheduleField = z
  .array(
    z.strictObject({
      cron: checkedText(200, cronProblem).describe(
        'Times at which the entry takes effect: minute, hour, day of the month, month and day of the week.',
      ),
      timezone: checkedText(64, timezoneProblem).describe('Time zone of cron, such as Europe/Berlin.'),
      min_replicas: count.describe('Replicas that run even without requests. Default: replicas.min.'),
      max_replicas: count.describe(
        'Maximum number of replicas. 0: the engine is off, and its requests are rejected. Default: replicas.max.',
      ),
    }),
  )
  .max(entriesMax)
  .default([])
  .describe('Other numbers of replicas, each from the times of its entry on until the time of another entry.');

type FileEntry = z.output<typeof scheduleField>[number];
type FileReplicas = z.output<typeof replicasField>;

/** The fields of an engine file on which its schedule depends; external engines have none of them. */
interface ScheduledFile {
  readonly schedule: readonly FileEntry[];
  readonly replicas: FileReplicas;
}

/** Reports entries that contradict themselves, `replicas` or each other. */
export function scheduleProblems(engine: ScheduledFile | { readonly driver: 'external' }): FileProblem[] {
  if (!('schedule' in engine)) return [];
  const { schedule, replicas } = engine;
  return schedule.flatMap((entry, index): FileProblem[] => {
    const { min, max } = boundsOf(entry, replicas);
    const isTwin = ({ cron, timezone }: FileEntry): boolean => cron === entry.cron && timezone === entry.timezone;
    if (schedule.findIndex(isTwin) < index) {
      const message = `the entry ${schedule.findIndex(isTwin) + 1} has the same times; remove one of them`;
      return [{ path: ['schedule', index, 'cron'], message }];
    }
    if (min <= max) return [];
    const isGiven = entry.min_replicas !== undefined;
    const from = isGiven ? '' : ' of replicas.min';
    const most = entry.max_replicas === undefined ? 'replicas.max' : 'max_replicas';
    return [
      {
        path: ['schedule', index, isGiven ? 'min_replicas' : 'max_replicas'],
        message: `the minimum ${min}${from} is more than ${most}, which is ${max}; set min_replicas and max_replicas`,
      },
    ];
  });
}

/** An engine that is off has no minimum, whatever `replicas` says. */
function boundsOf({ min_replicas: min, max_replicas: max }: FileEntry, replicas: FileReplicas) {
  return { min: min ?? (max === 0 ? 0 : replicas.min), max: max ?? replicas.max };
}

export function toSchedule({ schedule, replicas }: ScheduledFile): readonly ScheduleEntry[] {
  return schedule.map((entry) => {
    return { cron: entry.cron, timezone: entry.timezone, ...boundsOf(entry, replicas) };
  });
}
