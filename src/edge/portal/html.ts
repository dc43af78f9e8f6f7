import { html } from 'hono/html';

/**
 * Pages are templates of hono/html: what stands in `${…}` is escaped, for text and for quoted attributes alike. Node runs
 * them as they are, without a loader and without a build step.
 */
export { html };

/** A piece of a page. */
export type Html = ReturnType<typeof html>;

/** What may stand in a template where there may be nothing. */
export type MaybeHtml = Html | readonly Html[] | string | null;
