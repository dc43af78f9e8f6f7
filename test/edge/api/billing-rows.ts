import { uuidv7 } from '#base/id.ts';
import { at, type Level, missing, nobody, type RoleRow, row } from './role-rows.ts';

/** Routes of costs and prices: see `role-rows.ts`. */

function ofBillingCurrency(method: string, level: Level, body?: object): RoleRow {
  return {
    route: `${method} /v1/orgs/{id}/billing-currency`,
    level,
    status: 200,
    ask: ({ organizationId }) => ({
      path: `/v1/orgs/${organizationId}/billing-currency`,
      ...(body !== undefined && { body }),
    }),
  };
}

const effective = '2026-01-01T00:00:00Z';

export const billingRows: readonly RoleRow[] = [
  // The window of the report is missing.
  { ...row('GET /v1/billing/costs', 'member', 200), ask: at('/v1/billing/costs?month=2026-03') },
  { ...row('GET /v1/billing/costs.csv', 'member', 200), ask: at('/v1/billing/costs.csv?month=2026-03') },
  { ...row('GET /v1/billing/costs/series', 'member', 200), ask: at('/v1/billing/costs/series?month=2026-03') },
  row('GET /v1/billing/currencies', 'member', 200),
  row('GET /v1/billing/budget', 'member', 200),
  row('PUT /v1/billing/budget', 'admin', 200, { amount: '5', currency: 'USD' }),
  row('DELETE /v1/billing/budget', 'admin', 204),
  ofBillingCurrency('GET', 'member'),
  ofBillingCurrency('PATCH', 'admin', { currency: 'EUR' }),
  row('GET /v1/billing/rate-cards', 'admin', 200),
  {
    ...row('POST /v1/billing/rate-cards', 'platform', 201),
    ask: () => ({
      path: '/v1/billing/rate-cards',
      body: { hardware_profile: uuidv7(), currency: 'USD', gpu_hour: '1' },
    }),
  },
  row('POST /v1/billing/rate-cards/import', 'platform', 400, { csv: '' }),
  missing('POST /v1/billing/rate-cards/{id}/end', 'platform', nobody('rate'), { at: effective }),
  row('GET /v1/billing/conversion-rates', 'admin', 200),
  row('POST /v1/billing/conversion-rates', 'platform', 400, { from: 'USD', to: 'USD', rate: '1' }),
  row('POST /v1/billing/conversion-rates/import', 'platform', 400, { csv: '' }),
  missing('POST /v1/billing/conversion-rates/{id}/end', 'platform', nobody('conv'), { at: effective }),
  row('GET /v1/billing/margins', 'platform', 400),
];
