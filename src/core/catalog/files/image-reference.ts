/** Matches `${NAME:-image}`: the gateway's variable of that name if set, otherwise the image after `:-`. */
const reference = /^\$\{([A-Za-z_][A-Za-z0-9_]*):-([^${}]+)\}$/;

/**
 * Returns a parsed engine file with the reference in `image` replaced. A reference always has a default, so that the
 * file names an image wherever it is checked.
 */
export function imageReferenceFilled(value: unknown, env: Readonly<Record<string, string | undefined>>): unknown {
  if (typeof value !== 'object' || value === null || !('image' in value) || typeof value.image !== 'string') {
    return value;
  }
  const [, name = '', fallback = ''] = reference.exec(value.image) ?? [];
  if (name === '') return value;
  const given = env[name] ?? '';
  return { ...value, image: given === '' ? fallback : given };
}
