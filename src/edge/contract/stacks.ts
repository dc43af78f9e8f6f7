import { z } from 'zod';
import { extension, idText } from './fields.ts';
import { pageOf } from './lists.ts';

/** Answers of `/v1/stacks`. */

const inputSchema = z
  .object({
    name: z.string(),
    type: z.enum(['string', 'number', 'bool', 'list', 'map']),
    type_expression: z
      .string()
      .nullable()
      .meta({ description: 'Type in the module, such as `list(string)`; null if there is none' }),
    description: z.string(),
    required: z.boolean(),
    default: z.unknown().meta({ description: 'Default value; null if there is none' }),
    sensitive: z.boolean().meta({ description: 'true: the value is hidden in logs' }),
  })
  .meta({ id: 'StackInput' });

const versionSchema = z
  .object({
    number: z.int().meta({ description: 'Version number, counted from 1' }),
    sha256: z.string().meta({ description: 'SHA-256 of the zip' }),
    size: z.int().meta({ description: 'Size of the zip in bytes' }),
    files: z.int().meta({ description: 'Number of files in the zip' }),
    created_at: z.iso.datetime(),
  })
  .meta({ id: 'StackVersion' });

const webSchema = z
  .object({
    port: z.int().nullable().meta({ description: 'Null if the run sets it with its output `web_port`' }),
    node: z.string().nullable().meta({ description: 'Name of a node; null is the first node' }),
    path: z.string().nullable().meta({ description: 'Path that the link to a run opens; null is `/`' }),
  })
  .meta({ id: 'StackWebPort' });

const providerSchema = z
  .object({
    source: z.string().meta({ example: 'hashicorp/aws' }),
    version: z.string().nullable().meta({ description: 'Version constraint, such as `>= 1.0`; null is any' }),
    in_mirror: z.boolean().nullable().meta({
      description: 'true if the provider mirror has a version of it; null if providers come from registries',
    }),
  })
  .meta({ id: 'StackProvider' });

/** A stack of the catalog. */
export const stackSchema = z
  .object({
    id: idText('stack'),
    name: z.string(),
    title: z.string(),
    description: z.string(),
    category: z.string().nullable(),
    icon: z.string().nullable().meta({ description: 'Emoji, or URL of an image; null if there is none' }),
    visibility: z
      .enum(['global', 'private'])
      .meta({ description: '`global`: for all organizations. `private`: for its owner' }),
    builtin: z.boolean().meta({ description: 'true if it is included in Headgate' }),
    owner_id: idText('user')
      .nullable()
      .meta({ description: 'Id of the owner; null for a built-in stack, and for callers who may not see it' }),
    inputs: z.array(inputSchema),
    applicable_profiles: z
      .array(z.string())
      .nullable()
      .meta({ description: 'Supported hardware profiles; null is all' }),
    web: webSchema.nullable().meta({ id: 'StackWebPort', description: 'Web port of a run; null if there is none' }),
    required_versions: z
      .array(z.string())
      .meta({ description: 'Version constraints for Terraform or OpenTofu; all must match' }),
    providers: z
      .array(providerSchema)
      .meta({ description: 'Providers of the module; modules that it calls may need more' }),
    warnings: z.array(z.string()).meta({ description: 'Parts of the package that were ignored or may be mistakes' }),
    version: versionSchema,
    created_at: z.iso.datetime(),
    updated_at: z.iso.datetime(),
  })
  .meta({ id: 'Stack' });

/** A version in the list of versions. */
export const stackVersionEntrySchema = versionSchema
  .extend({
    newest: z.boolean().meta({ description: 'true for the version that an apply without `stack_version` uses' }),
    created_by: idText('user')
      .nullable()
      .meta({ description: 'Id of the user who uploaded it; null for a built-in stack, and for other callers' }),
    in_use: z
      .boolean()
      .nullable()
      .meta({ description: 'true if runs need the version; null for callers who may not change the stack' }),
  })
  .meta(extension('StackVersionEntry', versionSchema));

/** A page of the versions of a stack. */
export const stackVersionPageSchema = pageOf(stackVersionEntrySchema, 'StackVersionPage');

const changeKind = z.enum(['added', 'removed', 'changed']);

/** The differences between two versions of a stack. */
export const stackDiffSchema = z
  .object({
    from: z.int().meta({ description: 'Number of the version that is compared' }),
    to: z.int().meta({ description: 'Number of the version with which it is compared' }),
    files: z.array(
      z
        .object({
          path: z.string().meta({ description: 'Path below the top folder of the package' }),
          change: changeKind,
          diff: z.string().nullable().meta({ description: "Unified diff in git's format; null if it is left out" }),
          omitted: z.enum(['binary', 'too_large']).nullable().meta({
            description: 'Why the diff is left out; null if it is not',
          }),
        })
        .meta({ id: 'StackFileChange' }),
    ),
    inputs: z
      .array(
        z
          .object({
            name: z.string(),
            change: changeKind,
            before: inputSchema.optional(),
            after: inputSchema.optional(),
          })
          .meta({ id: 'StackInputChange' }),
      )
      .meta({
        description:
          'Inputs that differ in type, default, `required` or `sensitive`; an added one has no `before`, a removed one no `after`',
      }),
  })
  .meta({ id: 'StackDiff' });

/** An uploaded stack. */
export const pushedStackSchema = stackSchema
  .extend({
    outcome: z
      .enum(['created', 'new_version', 'changed', 'unchanged'])
      .meta({ description: 'Result of the upload; `unchanged` creates no version and no audit log entry' }),
  })
  .meta(extension('PushedStack', stackSchema));

/** A page of stacks. */
export const stackPageSchema = pageOf(stackSchema, 'StackPage');

export type StackAnswer = z.infer<typeof stackSchema>;
export type StackInputAnswer = StackAnswer['inputs'][number];
export type StackVersionAnswer = StackAnswer['version'];
export type StackVersionEntryAnswer = z.infer<typeof stackVersionEntrySchema>;
export type StackDiffAnswer = z.infer<typeof stackDiffSchema>;
