import { html } from 'hono/html';

/**
 * Pages are templates of hono/html, which escapes the values in `${…}`, both in text and in quoted attributes. Node
 * runs them without a loader or build step.
 */
export { html };

/** A fragment of a page. */
export type Html = ReturnType<typeof html>;

/** An optional value in a template. */
export type MaybeHtml = Html | readonly Html[] | string | null;
