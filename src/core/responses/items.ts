/** Output items of responses, parsed. */

type Members = Readonly<Record<string, unknown>>;

/** Longest id, in bytes, by which an item is found. Engines' ids have some 20. */
const itemIdBytesMax = 128;

/** True for a value that PostgreSQL can store as the id of an item. */
export function isItemId(id: unknown): id is string {
  return typeof id === 'string' && id !== '' && Buffer.byteLength(id) <= itemIdBytesMax && !id.includes('\0');
}

function outputOf(response: string): readonly Members[] {
  const { output } = JSON.parse(response) as Members;
  if (!Array.isArray(output)) return [];
  return (output as unknown[]).filter((item): item is Members => typeof item === 'object' && item !== null);
}

/** Returns the different ids of the output items. */
export function itemIdsOf(response: Buffer): readonly string[] {
  const ids = outputOf(response.toString('utf8')).map(({ id }) => id);
  return [...new Set(ids.filter(isItemId))];
}

/** Returns the JSON of one output item as it can be sent to an engine; null without such an item. */
export function outputItemOf(response: string, id: string): string | null {
  const item = outputOf(response).find((one) => one['id'] === id);
  return item === undefined ? null : toSend(item);
}

/** Returns the JSON of the output items of a response, as they can be sent to an engine as input. */
export function itemsToSend(response: string): readonly string[] {
  return outputOf(response).filter(hasContent).map(toSend);
}

/** False for a message without a part, as of a response that reached its limit before it had text: engines fail on it. */
function hasContent({ type, content }: Members): boolean {
  return type !== 'message' || (Array.isArray(content) && content.length > 0);
}

/** Leaves out null members, which some engines write and do not read. */
function toSend(item: Members): string {
  return JSON.stringify(item, (_key, value: unknown) => (value === null ? undefined : value));
}
