export { type BudgetRoutesParts, registerBudgetRoutes } from './budgets.ts';
export { registerHoldRoutes } from './holds.ts';
export { registerWalletBookingRoutes } from './wallet-bookings.ts';
export { registerWalletRoutes } from './wallet.ts';
