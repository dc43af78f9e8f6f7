import { createRoute, z } from '@hono/zod-openapi';
import type { Clock } from '#base/clock.ts';
import { formatId } from '#base/id.ts';
import { formatUsd } from '#base/money.ts';
import type { Accounts, Organization } from '#core/accounts/accounts.ts';
import type { Keys } from '#core/keys/keys.ts';
import type { History } from '#core/metering/metering.ts';
import type { Wallet } from '#core/wallet/wallet.ts';
import {
  type ApiApp,
  bearerSecurity,
  type Guards,
  jsonAnswer,
  longText,
  pageQuery,
  type Sort,
  sortQuery,
  toPage,
} from '#edge/api/shared/shared.ts';
import {
  organizationReportSchema,
  organizationSchema,
  type ReportedOrganizationAnswer,
} from '#edge/contract/organizations.ts';
import { toAnswer } from './organization-schemas.ts';

/** Report of all organizations with balance, spending and keys, for platform administrators. */

export interface OrganizationReportParts {
  readonly guards: Guards;
  readonly accounts: Pick<Accounts, 'listOrganizations'>;
  readonly keys: Pick<Keys, 'countActive'>;
  readonly history: Pick<History, 'spending' | 'during'>;
  readonly wallet: Pick<Wallet, 'balances'>;
  readonly clock: Clock;
}

const dayMs = 86_400_000;
const readAtOnce = 500;
const sorts = ['name', 'created_at', 'status', 'balance', 'spent_month', 'spent_30_days', 'active_keys'] as const;
type SortField = (typeof sorts)[number];

const route = (guards: Guards) =>
  createRoute({
    method: 'get',
    path: '/v1/admin/organizations',
    security: bearerSecurity,
    middleware: [guards.may('organizations')],
    request: {
      query: z.strictObject({
        ...pageQuery,
        sort: sortQuery(sorts),
        search: longText(200).optional().openapi({ description: 'Part of the name (case-insensitive), or the id' }),
        status: organizationSchema.shape.status
          .optional()
          .openapi({ description: 'Only organizations with this status' }),
      }),
    },
    responses: { 200: jsonAnswer(organizationReportSchema, 'A page of organizations') },
  });

interface Reported {
  readonly organization: Organization;
  readonly balance: bigint;
  readonly spentMonth: bigint;
  readonly spent30Days: bigint;
  readonly requests: number;
  readonly activeKeys: number;
}

async function readAll({ accounts }: OrganizationReportParts): Promise<Organization[]> {
  const all: Organization[] = [];
  for (let before: string | null = null, isMore = true; isMore;) {
    const page = await accounts.listOrganizations(readAtOnce, before);
    all.push(...page.organizations);
    before = page.organizations.at(-1)?.id ?? null;
    isMore = page.more && before !== null;
  }
  return all;
}

async function readReport(parts: OrganizationReportParts): Promise<Reported[]> {
  const { keys, history, wallet, clock } = parts;
  const now = new Date(clock.now());
  const monthMs = Date.UTC(now.getUTCFullYear(), now.getUTCMonth(), 1);
  const todayMs = Math.floor(now.getTime() / dayMs) * dayMs;
  const organizations = await readAll(parts);
  const ids = organizations.map(({ id }) => id);
  const [balances, spending, active] = await Promise.all([
    history.during(null, (db) => wallet.balances(db.sql, ids)),
    history.spending([monthMs, todayMs - 29 * dayMs]),
    keys.countActive(),
  ]);
  return organizations.map((organization) => {
    const [ofMonth, of30Days] = spending.get(organization.id) ?? [];
    return {
      organization,
      balance: balances.get(organization.id) ?? 0n,
      spentMonth: ofMonth?.costPicoUsd ?? 0n,
      spent30Days: of30Days?.costPicoUsd ?? 0n,
      requests: of30Days?.requests ?? 0,
      activeKeys: active.get(organization.id) ?? 0,
    };
  });
}

const compare = <T extends bigint | number | string>(a: T, b: T): number => (a < b ? -1 : a > b ? 1 : 0);

function fieldOf(one: Reported, field: SortField): bigint | number | string {
  switch (field) {
    case 'name':
      return one.organization.name.toLowerCase();
    case 'created_at':
      return one.organization.createdAtMs;
    case 'status':
      return one.organization.status;
    case 'balance':
      return one.balance;
    case 'spent_month':
      return one.spentMonth;
    case 'spent_30_days':
      return one.spent30Days;
    case 'active_keys':
      return one.activeKeys;
  }
}

function sorted(list: readonly Reported[], { by, descending }: Sort<SortField>): Reported[] {
  return list.toSorted((a, b) => {
    const order = compare(fieldOf(a, by), fieldOf(b, by));
    return (descending ? -order : order) || compare(a.organization.id, b.organization.id);
  });
}

function toReported(one: Reported): ReportedOrganizationAnswer {
  return {
    ...toAnswer(one.organization),
    balance: formatUsd(one.balance),
    spent_month: formatUsd(one.spentMonth),
    spent_30_days: formatUsd(one.spent30Days),
    requests_30_days: one.requests,
    active_keys: one.activeKeys,
  };
}

export function registerOrganizationReportRoute(app: ApiApp, parts: OrganizationReportParts): void {
  app.openapi(route(parts.guards), async (context) => {
    const asked = context.req.valid('query');
    const { page, limit, sort, search = '', status } = asked;
    const text = search.toLowerCase();
    const found = (await readReport(parts)).filter(
      ({ organization: { id, name, status: is } }) =>
        (status === undefined || is === status) && (name.toLowerCase().includes(text) || formatId('org', id) === text),
    );
    const order = sorted(found, sort);
    const data = order.slice((page - 1) * limit, page * limit).map(toReported);
    return context.json(toPage(data, asked, order.length), 200);
  });
}
