import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import {
  categoryCharsMax,
  type Comparison,
  descriptionCharsMax,
  iconRule,
  isIcon,
  type KeptVersion,
  type Stack,
  type StackInput,
  stackNamePattern,
  stackNameRule,
  type StackVersion,
  type StackViewer,
  stackVisibilities,
  titleCharsMax,
  toCategory,
} from '#core/stacks/stacks.ts';
import { longText } from '#edge/api/shared/shared.ts';
import { nameText } from '#edge/contract/fields.ts';
import type {
  StackAnswer,
  StackDiffAnswer,
  StackInputAnswer,
  StackVersionAnswer,
  StackVersionEntryAnswer,
} from '#edge/contract/stacks.ts';

/** Schemas of stacks, and of the fields that a client may set. */

function toInput({
  name,
  type,
  typeExpression,
  description,
  required,
  sensitive,
  ...input
}: StackInput): StackInputAnswer {
  return { name, type, type_expression: typeExpression, description, required, default: input.default, sensitive };
}

const iso = (ms: number): string => new Date(ms).toISOString();

const toVersionAnswer = ({ number, sha256, sizeBytes, metadata, createdAtMs }: StackVersion): StackVersionAnswer => ({
  number,
  sha256,
  size: sizeBytes,
  files: metadata.files,
  created_at: iso(createdAtMs),
});

/** Only those who may change the stack see who uploaded a version and whether runs use it. */
export function toVersionEntry(
  { version, createdByUserId, isPinned }: KeptVersion,
  stack: Stack,
  { userId, isAdmin }: StackViewer,
): StackVersionEntryAnswer {
  const seesAll = isAdmin || (stack.visibility === 'private' && stack.ownerUserId === userId);
  return {
    ...toVersionAnswer(version),
    newest: version.id === stack.version.id,
    created_by: seesAll && createdByUserId !== null ? formatId('user', createdByUserId) : null,
    in_use: seesAll ? isPinned : null,
  };
}

export function toDiffAnswer({ from, to, files, inputs }: Comparison): StackDiffAnswer {
  return {
    from: from.number,
    to: to.number,
    files: files.map((file) => ({ ...file })),
    inputs: inputs.map(({ before, after, ...input }) => ({
      ...input,
      ...(before !== null && { before: toInput(before) }),
      ...(after !== null && { after: toInput(after) }),
    })),
  };
}

/** @param mirrored sources of providers in the mirror; null if providers come from registries */
export function toStackAnswer(stack: Stack, viewer: StackViewer, mirrored: ReadonlySet<string> | null): StackAnswer {
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
    version: toVersionAnswer(version),
    created_at: iso(stack.createdAtMs),
    updated_at: iso(stack.updatedAtMs),
  };
}

const versionMax = 999_999_999;

/** Number of a version of a stack, in a body. */
export const stackVersionNumber = z.int().min(1).max(versionMax);

/** Number of a version of a stack, in a query. */
export const stackVersionQuery = z
  .string()
  .regex(/^[1-9]\d{0,8}$/, 'must be the number of a version')
  .transform(Number)
  .optional()
  .openapi({ type: 'integer', minimum: 1, maximum: versionMax });

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
