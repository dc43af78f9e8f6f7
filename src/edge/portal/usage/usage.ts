export { deleteContent } from './request-content.ts';
export { requestPage } from './request-page.ts';
export { findRequest } from './rejected.ts';
export { requestsTable } from './requests-table.ts';
export { usageCsv, usagePage } from './usage-page.ts';
