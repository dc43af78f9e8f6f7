/** What is read of a request: Node's list of alternating names and values, as they came over the wire. */
export interface RawRequest {
  readonly rawHeaders: readonly string[];
  readonly socket?: { readonly remoteAddress?: string | undefined };
}

/** All values of a header. Node keeps the first of two; here two are told apart. */
export function headerValues(request: RawRequest, lowerName: string): string[] {
  const values: string[] = [];
  const { rawHeaders } = request;
  for (let index = 0; index + 1 < rawHeaders.length; index += 2) {
    const name = rawHeaders[index];
    if (name === undefined || name.length !== lowerName.length || name.toLowerCase() !== lowerName) continue;
    values.push(rawHeaders[index + 1] ?? '');
  }
  return values;
}
