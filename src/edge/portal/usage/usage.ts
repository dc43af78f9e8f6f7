export { deleteContent } from './request-content.ts';
export { requestPage } from './request-page.ts';
export { findRequest } from './rejected.ts';
export { requestsTable } from './requests-table.ts';
export { usageExport, usagePage } from './usage-page.ts';
