/** What a stack may be called, and what its inputs may not. */

export const stackNamePattern = /^[a-z0-9][a-z0-9-]{1,62}$/;
export const stackNameRule = 'must have 2 to 63 lower-case letters, digits and hyphens, and not begin with a hyphen';

/** What the platform gives every run that declares it: no input of a user's. */
export const reservedInputs: ReadonlySet<string> = new Set([
  'cluster_id',
  'cluster_name',
  'public_domain',
  'nodes',
  'node_addresses',
  'ssh_user',
  'ssh_private_key',
  'ssh_private_key_file',
]);

/** Categories that the catalog knows, as they are written; others are free. */
export const stackCategories = ['Scheduler', 'Orchestration', 'ML Framework', 'Monitoring'] as const;
export const categoryCharsMax = 50;
export const titleCharsMax = 100;
export const descriptionCharsMax = 1000;

/** A category as it is kept: those that the catalog knows in their own spelling. */
export function toCategory(text: string): string {
  return stackCategories.find((known) => known.toLowerCase() === text.toLowerCase()) ?? text;
}

/** A name made of a file's or a folder's; null where nothing of it may stand in one. */
export function slugOf(text: string): string | null {
  const slug = text
    .normalize('NFKD')
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-+|-+$/g, '')
    .slice(0, 63)
    .replace(/-+$/, '');
  return stackNamePattern.test(slug) ? slug : null;
}
