export { amountText } from './amount-text.ts';
export { type ApiApp, createApiApp } from './app.ts';
export { createGuards, type Guards } from './auth.ts';
export {
  creationOrder,
  cursorListQuery,
  cursorPageOf,
  numberedLimit,
  readAfter,
  readNumbered,
  toCursorPage,
} from './cursor-page.ts';
export { listOf, listQuery, readCursor, toListPage } from './list.ts';
export { readModelList } from './model-list.ts';
export { anotherSecret, createOnceGuards, createReadAgain, onceHeaders } from './once.ts';
export { isOperator, type OrganizationDirectory, requireOrganization } from './organization-of.ts';
export { pageOf, pageQuery, type Sort, sortQuery, toPage, wholeListLimit } from './pages.ts';
export {
  bearerSecurity,
  errorDescription,
  idText,
  jsonAnswer,
  jsonRequest,
  longText,
  nameText,
  noFields,
  notFound,
  organizationQuery,
  orNull,
  requireId,
  someFields,
  textOrNull,
  toUnixSeconds,
  toUnixSecondsOrNull,
  unixSeconds,
  unixSecondsOrNull,
} from './schemas.ts';
export { timeBound } from './time-bound.ts';
