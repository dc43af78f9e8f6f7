import { z } from 'zod';
import { idText } from './fields.ts';
import { pageOf } from './lists.ts';

/** Answers of `/v1/projects`. */

const visibility = z
  .enum(['private', 'public'])
  .meta({ description: '`public`: all members see the project. `private`: only administrators and its own keys' });

/** A project. */
export const projectSchema = z
  .object({
    id: idText('proj'),
    name: z.string(),
    description: z.string(),
    visibility,
    archived: z.boolean().meta({ description: 'true: accepts no requests and no new keys' }),
    created_at: z.iso.datetime(),
  })
  .meta({ id: 'Project' });

/** A page of projects. */
export const projectPageSchema = pageOf(projectSchema, 'ProjectPage');

export type ProjectAnswer = z.infer<typeof projectSchema>;
