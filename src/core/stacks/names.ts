/** Rules for names of stacks and inputs, and for other texts of stacks. */

export const stackNamePattern = /^[a-z0-9][a-z0-9-]{1,62}$/;
export const stackNameRule = 'must have 2 to 63 lower-case letters, digits and hyphens, and not begin with a hyphen';

/** Variables that the platform sets in every run that declares them; users cannot set them as inputs. */
export const reservedInputs: ReadonlySet<string> = new Set([
  'cluster_id',
  'cluster_name',
  'public_domain',
  'nodes',
  'node_addresses',
  'ssh_user',
  'ssh_private_key',
  'ssh_private_key_file',
  'engine_api_key',
]);

/** Categories with a fixed spelling; others are allowed too. */
export const stackCategories = ['Scheduler', 'Orchestration', 'ML Framework', 'Monitoring'] as const;
export const categoryCharsMax = 50;
export const titleCharsMax = 100;
export const descriptionCharsMax = 1000;

/** Returns a category as stored: known categories in their fixed spelling. */
export function toCategory(text: string): string {
  return stackCategories.find((known) => known.toLowerCase() === text.toLowerCase()) ?? text;
}

/** Makes a stack name from the name of a file or folder; null if no valid name remains. */
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
