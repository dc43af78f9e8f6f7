/** The headers of a request as they arrived: Node's list of alternating names and values. */
export interface RawRequest {
  readonly rawHeaders: readonly string[];
  readonly socket?: { readonly remoteAddress?: string | undefined };
}

/** Returns all values of a header. Node's own `headers` keep only one of several values, or join them. */
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
