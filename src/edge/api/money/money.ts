export { type BudgetRoutesParts, registerBudgetRoutes, toBudgetAnswers } from './budgets.ts';
export { registerHoldRoutes } from './holds.ts';
export { registerWalletBookingRoutes } from './wallet-bookings.ts';
export { registerWalletRoutes } from './wallet.ts';
