import { AppError } from '#base/errors.ts';
import type { Action } from '#core/accounts/accounts.ts';
import type { Page } from './parts.ts';

/** A page with a form that the API would refuse to who may not do this with all of the organization: 403 instead. */
export function only(action: Action, make: Page): Page {
  return (visit, parts, param) => {
    if (visit.may(action)) return make(visit, parts, param);
    throw new AppError('insufficient_scope', {
      message: 'Your role here may not do this. Ask somebody who administers the organization or the platform.',
    });
  };
}
