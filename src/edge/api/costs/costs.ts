export { type BillingRoutesParts, registerBillingRoutes } from './billing.ts';
