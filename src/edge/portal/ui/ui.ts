export { chart, type ChartOptions, mark, type Series, type Span, timelineChart } from './chart.ts';
export { beganWith, changesIn, isEmpty } from './edit-form.ts';
export {
  area,
  type AreaOptions,
  badge,
  checkbox,
  type Choice,
  copyable,
  describedBy,
  empty,
  field,
  type FieldOptions,
  type Figure,
  figures,
  formToken,
  modelsField,
  modelsOf,
  notes,
  notice,
  older,
  problemOf,
  radios,
  records,
  refused,
  renamed,
  select,
  table,
  tabs,
} from './elements.ts';
export { takeNotice, withNotice } from './flash-message.ts';
export {
  decimalOf,
  type Form,
  formBody,
  numberOf,
  onceOf,
  readForm,
  readUpload,
  requireFormToken,
  uploadBody,
  type UploadForm,
  usdOf,
} from './form.ts';
export { count, counted, milliseconds, time, timeIn, timeInUtc, timeOf, timeToSecond, usd } from './format.ts';
export { html, type Html, type MaybeHtml } from './html.ts';
export { facts, filterForm, pager, section, sortColumn, sortOf } from './lists.ts';
export {
  asksByItself,
  forgetToken,
  headerOf,
  keepToken,
  type Place,
  placeOf,
  requireOwnOrigin,
  tokenOf,
} from './page-origin.ts';
export {
  createVisit,
  noticeOf,
  pathWith,
  queryOf,
  type Refusal,
  refusalOf,
  RefusedError,
  retryAfterOf,
  type Viewed,
  type Visit,
} from './page-request.ts';
export type { Change, Page, PortalParts, ProviderParts, Upload } from './parts.ts';
export { isChat, sampleModel, snippetList, snippetsOf } from './snippets.ts';
