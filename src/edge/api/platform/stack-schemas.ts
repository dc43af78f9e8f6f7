import { z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import {
  categoryCharsMax,
  descriptionCharsMax,
  iconRule,
  isIcon,
  type Stack,
  type StackInput,
  stackNamePattern,
  stackNameRule,
  type StackViewer,
  stackVisibilities,
  titleCharsMax,
  toCategory,
} from '#core/stacks/stacks.ts';
import { longText } from '#edge/api/shared/shared.ts';
import { nameText } from '#edge/contract/fields.ts';
import type { StackAnswer, StackInputAnswer } from '#edge/contract/stacks.ts';

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
