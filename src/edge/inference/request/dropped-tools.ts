/** A request without the tools that its engine does not serve. */
export interface DroppedTools {
  /** Types that were left out, such as `web_search`, without repetition; `custom.format` for the grammar of a tool. */
  readonly names: readonly string[];
  /** New values of members of the body, as latin1 JSON. */
  readonly members: ReadonlyMap<string, string>;
  /** Bytes by which the body gets shorter; below 0 if it gets longer. */
  readonly bytes: number;
}
