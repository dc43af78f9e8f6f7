import type { VersionMetadata } from '#core/stacks/package/package.ts';
import type { stacks, stackVersions } from './schema.ts';

export const stackVisibilities = ['global', 'private'] as const;
export type StackVisibility = (typeof stackVisibilities)[number];

export interface StackVersion {
  readonly id: string;
  /** Version number, from 1. */
  readonly number: number;
  /** SHA-256 of the zip, in hexadecimal digits. */
  readonly sha256: string;
  readonly sizeBytes: number;
  readonly metadata: VersionMetadata;
  readonly createdAtMs: number;
}

/** A stack with its current version. */
export interface Stack {
  readonly id: string;
  readonly name: string;
  readonly visibility: StackVisibility;
  /** True if the stack comes with the product. */
  readonly isBuiltin: boolean;
  readonly ownerUserId: string | null;
  readonly title: string;
  readonly description: string;
  readonly category: string | null;
  readonly icon: string | null;
  readonly version: StackVersion;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
}

/** True if two states of a stack have the same fields; callers compare versions themselves. */
export function isSameStack(one: Stack, other: Stack): boolean {
  const fields = ['title', 'description', 'category', 'icon', 'visibility'] as const;
  return fields.every((field) => one[field] === other[field]);
}

/** Viewer of the catalog. */
export interface StackViewer {
  readonly userId: string | null;
  /** True for platform administrators. */
  readonly isAdmin: boolean;
}

export type StackRow = typeof stacks.$inferSelect;
export type VersionRow = Omit<typeof stackVersions.$inferSelect, 'pins'>;

export function toVersion(row: VersionRow): StackVersion {
  const { id, number, sha256, sizeBytes, metadata } = row;
  return { id, number, sha256, sizeBytes, metadata, createdAtMs: row.createdAt.getTime() };
}

export function toStack(row: StackRow, version: VersionRow): Stack {
  const { id, name, visibility, isBuiltin, ownerUserId, title, description, category, icon } = row;
  return {
    id,
    name,
    visibility,
    isBuiltin,
    ownerUserId,
    title,
    description,
    category,
    icon,
    version: toVersion(version),
    createdAtMs: row.createdAt.getTime(),
    updatedAtMs: row.updatedAt.getTime(),
  };
}
