import type { Form } from './form.ts';
import { html, type Html } from './html.ts';

/**
 * Edit forms send only the fields that the visitor changed: a page that was opened earlier must not undo a change that
 * somebody else made meanwhile.
 */

/** A body in the API's format. */
type Body = Readonly<Record<string, unknown>>;

const fieldName = 'began_with';

/**
 * Hidden field with the body that the form would send unchanged.
 * @param refused the rejected form that is shown again; its original start values are kept
 */
export function beganWith(body: Body, refused: Form | null): Html {
  const text = refused?.has(fieldName) === true ? refused.text(fieldName) : JSON.stringify(body);
  return html`<input type="hidden" name="${fieldName}" value="${text}" />`;
}

/**
 * Returns the changed fields of a body, or all fields if the form has no start values. Within an object that is a
 * field, a member that the form no longer has is null.
 */
export function changesIn(form: Form, body: Body): Body {
  return changesSince(readBegan(form), body);
}

function changesSince(began: Body, body: Body): Body {
  const changes = Object.entries(body).flatMap(([name, value]): [string, unknown][] => {
    const before = Object.hasOwn(began, name) ? began[name] : undefined;
    if (JSON.stringify(value) === JSON.stringify(before)) return [];
    return [[name, isBody(value) && isBody(before) ? changesSince(before, { ...nullsOf(before), ...value }) : value]];
  });
  return Object.fromEntries(changes);
}

const nullsOf = (body: Body): Body => Object.fromEntries(Object.keys(body).map((name) => [name, null]));

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
