import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import {
  categoryCharsMax,
  descriptionCharsMax,
  iconRule,
  inputTypes,
  isIcon,
  pushOutcomes,
  type Stack,
  type StackInput,
  stackNamePattern,
  stackNameRule,
  type StackViewer,
  stackVisibilities,
  titleCharsMax,
  toCategory,
} from '#core/stacks/stacks.ts';
import { idText, longText, nameText, pageOf } from '#edge/api/shared/shared.ts';

/** Schemas of stacks, and of the fields that a client may set. */

const inputSchema = z
  .object({
    name: z.string(),
    type: z.enum(inputTypes),
    type_expression: z
      .string()
      .nullable()
      .openapi({ description: 'Type in the module, such as `list(string)`; null if there is none' }),
    description: z.string(),
    required: z.boolean(),
    default: z.unknown().openapi({ description: 'Default value; null if there is none' }),
    sensitive: z.boolean().openapi({ description: 'true: the value is hidden in logs' }),
  })
  .openapi('StackInput');

function toInput({
  name,
  type,
  typeExpression,
  description,
  required,
  sensitive,
  ...input
}: StackInput): z.infer<typeof inputSchema> {
  return { name, type, type_expression: typeExpression, description, required, default: input.default, sensitive };
}

const versionSchema = z
  .object({
    number: z.int().openapi({ description: 'Version number, counted from 1' }),
    sha256: z.string().openapi({ description: 'SHA-256 of the zip' }),
    size: z.int().openapi({ description: 'Size of the zip in bytes' }),
    files: z.int().openapi({ description: 'Number of files in the zip' }),
    created_at: z.iso.datetime(),
  })
  .openapi('StackVersion');

const webSchema = z
  .object({
    port: z.int().nullable().openapi({ description: 'Null if the run sets it with its output `web_port`' }),
    node: z.string().nullable().openapi({ description: 'Name of a node; null is the first node' }),
    path: z.string().nullable().openapi({ description: 'Path that the link to a run opens; null is `/`' }),
  })
  .openapi('StackWebPort');

const providerSchema = z
  .object({
    source: z.string().openapi({ example: 'hashicorp/aws' }),
    version: z.string().nullable().openapi({ description: 'Version constraint, such as `>= 1.0`; null is any' }),
    in_mirror: z.boolean().nullable().openapi({
      description: 'true if the provider mirror has a version of it; null if providers come from registries',
    }),
  })
  .openapi('StackProvider');

export const stackSchema = z
  .object({
    id: idText('stack'),
    name: z.string(),
    title: z.string(),
    description: z.string(),
    category: z.string().nullable(),
    icon: z.string().nullable().openapi({ description: 'Emoji, or URL of an image; null if there is none' }),
    visibility: z
      .enum(stackVisibilities)
      .openapi({ description: '`global`: for all organizations. `private`: for its owner' }),
    builtin: z.boolean().openapi({ description: 'true if it is included in Headgate' }),
    owner_id: idText('user')
      .nullable()
      .openapi({ description: 'Id of the owner; null for a built-in stack, and for callers who may not see it' }),
    inputs: z.array(inputSchema),
    applicable_profiles: z
      .array(z.string())
      .nullable()
      .openapi({ description: 'Supported hardware profiles; null is all' }),
    web: webSchema.nullable().openapi({ description: 'Web port of a run; null if there is none' }),
    required_versions: z
      .array(z.string())
      .openapi({ description: 'Version constraints for Terraform or OpenTofu; all must match' }),
    providers: z
      .array(providerSchema)
      .openapi({ description: 'Providers of the module; modules that it calls may need more' }),
    warnings: z.array(z.string()).openapi({ description: 'Parts of the package that were ignored or may be mistakes' }),
    version: versionSchema,
    created_at: z.iso.datetime(),
    updated_at: z.iso.datetime(),
  })
  .openapi('Stack');

export const pushedStackSchema = stackSchema
  .extend({
    outcome: z
      .enum(pushOutcomes)
      .openapi({ description: 'Result of the upload; `unchanged` creates no version and no audit log entry' }),
  })
  .openapi('PushedStack');

export const stackPageSchema = pageOf(stackSchema, 'StackPage');

const iso = (ms: number): string => new Date(ms).toISOString();

/** @param mirrored sources of providers in the mirror; null if providers come from registries */
export function toStackAnswer(
  stack: Stack,
  viewer: StackViewer,
  mirrored: ReadonlySet<string> | null,
): z.infer<typeof stackSchema> {
  const { version, ownerUserId } = stack;
  const { metadata } = version;
  const seesOwner = ownerUserId !== null && (viewer.isAdmin || ownerUserId === viewer.userId);
  return {
    id: formatId('stack', stack.id),
    name: stack.name,
    title: stack.title,
    description: stack.description,
    category: stack.category,
    icon: stack.icon,
    visibility: stack.visibility,
    builtin: stack.isBuiltin,
    owner_id: seesOwner ? formatId('user', ownerUserId) : null,
    inputs: metadata.inputs.map(toInput),
    applicable_profiles: metadata.applicableProfiles === null ? null : [...metadata.applicableProfiles],
    web: metadata.web,
    required_versions: [...metadata.requiredVersions],
    providers: (metadata.providers ?? []).map(({ source, version: constraint }) => ({
      source,
      version: constraint,
      in_mirror: mirrored?.has(source) ?? null,
    })),
    warnings: [...metadata.warnings],
    version: {
      number: version.number,
      sha256: version.sha256,
      size: version.sizeBytes,
      files: metadata.files,
      created_at: iso(version.createdAtMs),
    },
    created_at: iso(stack.createdAtMs),
    updated_at: iso(stack.updatedAtMs),
  };
}

const category = nameText(categoryCharsMax).transform(toCategory);
const icon = z.string().refine(isIcon, iconRule).openapi({
  description: 'One emoji, an https URL of an image, or a `data:` URL of a PNG or WebP of at most 32 KiB',
});

/** Fields that a client may send with a package, which override the manifest. */
export const stackFields = {
  name: z.string().regex(stackNamePattern, stackNameRule).optional().openapi({
    description: 'Name of the stack; default is the name in the manifest, else one derived from the package',
  }),
  title: nameText(titleCharsMax).optional(),
  description: longText(descriptionCharsMax).optional(),
  category: category.optional(),
  icon: icon.optional(),
};

export const stackPatchSchema = z
  .strictObject({
    title: nameText(titleCharsMax).optional(),
    description: longText(descriptionCharsMax).optional(),
    category: category.nullish(),
    icon: icon.nullish(),
    visibility: z.enum(stackVisibilities).optional().openapi({ description: 'Only platform administrators change it' }),
  })
  .refine((patch) => Object.keys(patch).length > 0, 'is empty: send at least one field to change')
  .openapi('PatchStack');
