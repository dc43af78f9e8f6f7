export { amountText } from './amount-text.ts';
export { type ApiApp, createApiApp } from './app.ts';
export { createGuards, type Guards } from './auth.ts';
export { creationOrder, cursorListQuery, numberedLimit, readAfter, readNumbered, toCursorPage } from './cursor-page.ts';
export { listQuery, readCursor, toListPage } from './list.ts';
export { readModelList } from './model-list.ts';
export { anotherSecret, createOnceGuards, createReadAgain, onceHeaders } from './once.ts';
export { isOperator, type OrganizationDirectory, requireOrganization } from './organization-of.ts';
export { pageQuery, type Sort, sortQuery, toPage, wholeListLimit } from './pages.ts';
export {
  bearerSecurity,
  errorDescription,
  jsonAnswer,
  jsonRequest,
  longText,
  noFields,
  notFound,
  listedOrganizationQuery,
  organizationQuery,
  requireId,
  someFields,
  timeBound,
  toUnixSeconds,
  toUnixSecondsOrNull,
} from './schemas.ts';
