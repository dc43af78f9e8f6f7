import type { WalletDaysAnswer } from '#edge/contract/wallet.ts';
import { chart, html, type Html, pathWith, table, usd, type Visit } from '#edge/portal/ui/ui.ts';

const days = 90;

/** Shows the balance at the end of each of the last days. @param organization empty for the viewed organization */
export async function balanceSection({ get }: Visit, organization: string): Promise<Html> {
  const { data } = await get<WalletDaysAnswer>(
    pathWith('/v1/wallet/days', { days: String(days), organization_id: organization }),
  );
  const changed = data.filter(({ credits, adjustments, charges }) =>
    [credits, adjustments, charges].some((amount) => amount !== '0'),
  );
  return html`<section aria-labelledby="balance-title">
    <h2 id="balance-title">Balance of the last ${days} days</h2>
    ${chart({
      title: `Balance at the end of each of the last ${days} days`,
      kind: 'lines',
      unit: 'usd',
      points: data.map(({ day }) => day),
      series: [
        {
          name: 'Balance',
          values: data.map(({ balance }) => Number(balance)),
          labels: data.map((day) => usd(day.balance)),
        },
      ],
    })}
    <details class="fold">
      <summary>Changes by day</summary>
      ${table({
        caption: 'Changes by day (UTC), newest first',
        columns: [
          { title: 'Day (UTC)' },
          { title: 'Credits', isNumber: true },
          { title: 'Adjustments', isNumber: true },
          { title: 'Charges', isNumber: true },
          { title: 'Balance', isNumber: true },
        ],
        rows: changed
          .toReversed()
          .map((day) => [day.day, usd(day.credits), usd(day.adjustments), usd(day.charges), usd(day.balance)]),
      })}
    </details>
  </section>`;
}
