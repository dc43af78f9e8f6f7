export { exampleId } from '#edge/contract/fields.ts';

/** Values that examples of the OpenAPI document share. */

/** Id of a request, in the form of `x-request-id`. */
export const requestId = '019ab1c2-d3e4-7f00-8a1b-2c3d4e5f6071';

/** Unix seconds. */
export const created = 1_790_000_000;
export const isoTime = '2026-09-21T14:13:20.000Z';
export const laterIsoTime = '2026-09-22T14:13:20.000Z';

export const model = 'qwen3-32b';

/** A page of the product's lists, which continue at `next_cursor`. */
export const cursorList = (...data: readonly unknown[]) => {
  return { object: 'list', data, has_more: false, next_cursor: null };
};

/** A page of a list in OpenAI's shape, which continues after `last_id`. */
export const openaiList = (item: { readonly id: string }) => {
  return { object: 'list', data: [item], first_id: item.id, last_id: item.id, has_more: false };
};

/** A page of a list with numbered pages. */
export const numberedPage = (...data: readonly unknown[]) => {
  return { data, pagination: { page: 1, limit: 20, total: data.length, pages: 1 } };
};
