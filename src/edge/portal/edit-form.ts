import type { Form } from './form.ts';
import { html, type Html } from './html.ts';

/**
 * Forms that change something send what somebody has touched in them, and nothing else: a page that was open while the
 * same thing was changed elsewhere must not take that back.
 */

/** As the API takes it. */
type Body = Readonly<Record<string, unknown>>;

const fieldName = 'began_with';

/**
 * Stands in the form: what it would send if nobody touched it.
 * @param refused the form that is shown again, which began with what it said then
 */
export function beganWith(body: Body, refused: Form | null): Html {
  const text = refused?.has(fieldName) === true ? refused.text(fieldName) : JSON.stringify(body);
  return html`<input type="hidden" name="${fieldName}" value="${text}" />`;
}

/** What of a body is to be changed; all of it where the form does not say what it began with. */
export function changesIn(form: Form, body: Body): Body {
  return changesSince(readBegan(form), body);
}

function changesSince(began: Body, body: Body): Body {
  const changes = Object.entries(body).flatMap(([name, value]): [string, unknown][] => {
    const before = Object.hasOwn(began, name) ? began[name] : undefined;
    if (JSON.stringify(value) === JSON.stringify(before)) return [];
    return [[name, isBody(value) && isBody(before) ? changesSince(before, value) : value]];
  });
  return Object.fromEntries(changes);
}

function readBegan(form: Form): Body {
  try {
    const began: unknown = JSON.parse(form.text(fieldName));
    return isBody(began) ? began : {};
  } catch {
    return {};
  }
}

const isBody = (value: unknown): value is Body => typeof value === 'object' && value !== null && !Array.isArray(value);

export const isEmpty = (changes: Body): boolean => Object.keys(changes).length === 0;
