export const inputTypes = ['string', 'number', 'bool', 'list', 'map'] as const;
export type InputType = (typeof inputTypes)[number];

/** A value of an input as JSON. */
export type InputValue =
  | string
  | number
  | boolean
  | null
  | readonly InputValue[]
  | { readonly [key: string]: InputValue };

/** Whether a value is of a type, as Terraform converts them: nothing is guessed of texts. */
export function fits(type: InputType, value: InputValue): boolean {
  switch (type) {
    case 'string':
      return typeof value === 'string';
    case 'number':
      return typeof value === 'number' && Number.isFinite(value);
    case 'bool':
      return typeof value === 'boolean';
    case 'list':
      return Array.isArray(value);
    case 'map':
      return typeof value === 'object' && value !== null && !Array.isArray(value);
  }
}
