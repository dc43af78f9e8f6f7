/** One page of a list. */
export interface Paging<Sort> {
  /** From 1. */
  readonly page: number;
  readonly limit: number;
  readonly sort: { readonly by: Sort; readonly descending: boolean };
}
