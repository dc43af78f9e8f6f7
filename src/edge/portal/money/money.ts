export { balanceWarning, readRunway, type Runway } from './balance-forecast.ts';
export { budgetSection, periodNames, scopeOf } from './budget-list.ts';
export {
  budgetPage,
  budgetsPage,
  changeBudget,
  createBudget,
  deleteBudget,
  newBudgetPage,
  raiseBudget,
  resetBudget,
  resetBudgetPage,
} from './budgets-page.ts';
export { changeRateLimit, rateLimitPage, rateLimitSection } from './rate-limits.ts';
export { readWallet, unknownBalance } from './read-wallet.ts';
export { addAdjustment, addCredit, walletPage } from './wallet-page.ts';
export { statementCsv, statementJson, statementPage } from './statement-page.ts';
