import fc from 'fast-check';

/** A change of bytes that asks for no sense. */
export type Cut =
  | { readonly kind: 'insert'; readonly at: number; readonly text: string }
  | { readonly kind: 'insert line'; readonly at: number; readonly text: string }
  | { readonly kind: 'byte'; readonly at: number; readonly byte: number }
  | { readonly kind: 'delete'; readonly at: number; readonly length: number }
  | { readonly kind: 'repeat'; readonly at: number; readonly length: number; readonly count: number };

const at = fc.nat(65_535);

/** One to three changes. @param snippets what is inserted, as UTF-8 */
export function cutsOf(snippets: fc.Arbitrary<string>): fc.Arbitrary<Cut[]> {
  const cut: fc.Arbitrary<Cut> = fc.oneof(
    fc.record({ kind: fc.constant('insert' as const), at, text: snippets }),
    fc.record({ kind: fc.constant('insert line' as const), at, text: snippets }),
    fc.record({ kind: fc.constant('byte' as const), at, byte: fc.nat(255) }),
    fc.record({ kind: fc.constant('delete' as const), at, length: fc.nat(40) }),
    fc.record({ kind: fc.constant('repeat' as const), at, length: fc.nat(60), count: fc.nat(30) }),
  );
  return fc.array(cut, { minLength: 1, maxLength: 3 });
}

export function applyCut(bytes: Buffer, one: Cut): Buffer {
  const from = one.at % (bytes.length + 1);
  const before = bytes.subarray(0, from);
  const after = bytes.subarray(from);
  switch (one.kind) {
    case 'insert':
      return Buffer.concat([before, Buffer.from(one.text), after]);
    case 'insert line': {
      const line = bytes.lastIndexOf(0x0a, from) + 1;
      return Buffer.concat([bytes.subarray(0, line), Buffer.from(one.text), bytes.subarray(line)]);
    }
    case 'byte':
      return Buffer.concat([before, Buffer.of(one.byte), after.subarray(1)]);
    case 'delete':
      return Buffer.concat([before, after.subarray(one.length)]);
    case 'repeat': {
      const part = after.subarray(0, one.length);
      return Buffer.concat([before, ...Array.from({ length: one.count }, () => part), after]);
    }
  }
}
