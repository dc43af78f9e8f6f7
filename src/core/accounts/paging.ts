/** One page of a list. */
export interface Paging<Sort> {
  /** Page number from 1. */
  readonly page: number;
  readonly limit: number;
  readonly sort: { readonly by: Sort; readonly descending: boolean };
}
