/** `${NAME:-image}`: the gateway's variable of that name where it is set, else the image that stands there. */
const reference = /^\$\{([A-Za-z_][A-Za-z0-9_]*):-([^${}]+)\}$/;

/**
 * An engine file as it was read, with the image that `image` stands for. It always has a default, so that a file says
 * what it runs wherever it is checked.
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
