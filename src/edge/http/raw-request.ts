/** The headers of a request as they came over the wire: Node's list of alternating names and values. */
export interface RawRequest {
  readonly rawHeaders: readonly string[];
  readonly socket?: { readonly remoteAddress?: string | undefined };
}

/** All values of a header: Node's own `headers` keep one of several or join them. */
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
