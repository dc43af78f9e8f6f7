import { AppError } from '#base/errors.ts';
import type { Action } from '#core/accounts/accounts.ts';
import type { Page } from '#edge/portal/ui/ui.ts';

/**
 * Wraps a page with a form: returns 403 to visitors who may not do the action, as the API would reject the form.
 * @param least `may`: for the whole organization; `mayOwn`: on their own resources
 */
export function only(action: Action, make: Page, least: 'may' | 'mayOwn' = 'may'): Page {
  return (visit, parts, param) => {
    if (visit[least](action)) return make(visit, parts, param);
    throw new AppError('insufficient_scope', {
      message: 'Your role does not allow this. Ask an administrator of the organization or the platform.',
    });
  };
}
