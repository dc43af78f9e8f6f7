import { AppError } from '#base/errors.ts';
import type { Action } from '#core/accounts/accounts.ts';
import type { Page } from '#edge/portal/ui/ui.ts';

/**
 * Wraps a page with a form: returns 403 to visitors who may not do the action for the whole organization, as the API
 * would reject the form.
 */
export function only(action: Action, make: Page): Page {
  return (visit, parts, param) => {
    if (visit.may(action)) return make(visit, parts, param);
    throw new AppError('insufficient_scope', {
      message: 'Your role does not allow this. Ask an administrator of the organization or the platform.',
    });
  };
}
