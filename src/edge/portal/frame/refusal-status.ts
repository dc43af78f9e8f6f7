import type { Refusal } from '#edge/portal/ui/ui.ts';
import type { PageOptions } from './layout.ts';

/** Returns the status of the page for a rejection by the API. */
export function statusOf({ status }: Refusal): NonNullable<PageOptions['status']> {
  const known = [400, 402, 403, 404, 409, 413, 422, 429, 500, 502, 503] as const;
  return known.find((one) => one === status) ?? 400;
}
