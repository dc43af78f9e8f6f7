import { createRoute, z } from '@hono/zod-openapi';
import { formatId } from '#base/id.ts';
import type { Costs } from '#core/costs/costs.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  jsonRequest,
  type OrganizationDirectory,
  requireOrganization,
} from '#edge/api/shared/shared.ts';
import { idText, textOrNull } from '#edge/contract/fields.ts';
import { billingCurrencySchema } from '#edge/contract/rates.ts';
import { authorOf } from '#edge/http/http.ts';
import { currencyText } from './dated-rates.ts';

export interface BillingCurrencyRoutesParts {
  readonly guards: Guards;
  readonly costs: Pick<Costs, 'billingCurrency' | 'changeBillingCurrency'>;
  readonly directory: OrganizationDirectory;
}

const path = '/v1/orgs/{id}/billing-currency';

const patchSchema = z.strictObject({ currency: textOrNull(currencyText()) }).openapi('PatchBillingCurrency');

const request = { params: z.object({ id: idText('org') }) };

export function registerBillingCurrencyRoutes(app: ApiApp, parts: BillingCurrencyRoutesParts): void {
  const { guards, costs, directory } = parts;
  const get = createRoute({
    method: 'get',
    path,
    security: bearerSecurity,
    middleware: [guards.may('costs.read')],
    request,
    responses: { 200: jsonAnswer(billingCurrencySchema, 'The currency') },
  });
  app.openapi(get, async (context) => {
    const { id } = await requireOrganization(context.get('caller'), directory, context.req.valid('param').id);
    return context.json({ organization_id: formatId('org', id), currency: await costs.billingCurrency(id) }, 200);
  });
  const patch = createRoute({
    method: 'patch',
    path,
    security: bearerSecurity,
    middleware: [guards.may('costs.currency'), guards.jsonBody],
    request: { ...request, body: jsonRequest(patchSchema) },
    responses: { 200: jsonAnswer(billingCurrencySchema, 'The currency') },
  });
  app.openapi(patch, async (context) => {
    const { id } = await requireOrganization(context.get('caller'), directory, context.req.valid('param').id);
    const { currency } = context.req.valid('json');
    await costs.changeBillingCurrency({ organizationId: id, currency, author: authorOf(context) });
    return context.json({ organization_id: formatId('org', id), currency }, 200);
  });
}
