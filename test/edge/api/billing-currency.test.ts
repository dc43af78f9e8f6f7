import { describe, expect, it } from 'vitest';
import { useApi } from '#test/api/test-api.ts';

const api = useApi();
const pathOf = (id: string): string => `/v1/orgs/${id}/billing-currency`;

async function memberKey(key: string): Promise<string> {
  return (await api().ask('/v1/keys', { key, body: { name: 'member', scope: 'inference' } })).body.secret;
}

describe('the billing currency of an organization', () => {
  it('returns 404 to other organizations, for reads and changes', async () => {
    const [own, other] = [await api().organization(), await api().organization()];
    for (const id of [other.id, `org_${'0'.repeat(32)}`, `org_${'f'.repeat(32)}`, 'nonsense']) {
      for (const asked of [{}, { method: 'PATCH', body: { currency: 'EUR' } }]) {
        const answer = await api().ask(pathOf(id), { key: own.key, ...asked });
        expect(answer).toMatchObject({ status: 404, body: { error: { message: 'There is no such organization.' } } });
      }
    }
    expect((await api().ask(pathOf(`org_${'0'.repeat(32)}`))).status).toBe(404);
    expect((await api().ask(pathOf(own.id), { key: null })).status).toBe(401);
  });

  it('is readable by members and changeable by managers', async () => {
    const { id, key } = await api().organization();
    const member = await memberKey(key);
    expect((await api().ask(pathOf(id), { key: member })).body).toEqual({ organization_id: id, currency: null });
    const asked = { method: 'PATCH', body: { currency: 'EUR' } };
    expect((await api().ask(pathOf(id), { key: member, ...asked })).status).toBe(403);
    expect((await api().ask(pathOf(id), { key, ...asked })).body).toEqual({ organization_id: id, currency: 'EUR' });
    // An operator may, too.
    expect((await api().ask(pathOf(id), { method: 'PATCH', body: { currency: 'jpy' } })).body.currency).toBe('JPY');
    const dotless = await api().ask(pathOf(id), { method: 'PATCH', body: { currency: 'ıqd' } });
    expect(dotless.status).toBe(400);
    expect((await api().ask(pathOf(id), { key: member })).body.currency).toBe('JPY');
    expect((await api().ask(pathOf(id), { key, method: 'PATCH', body: { currency: null } })).body.currency).toBeNull();
    const rows = await api().db.sql`
      select before->>'billing_currency' as before, after->>'billing_currency' as after from audit_log
      where action = 'organization.billing_currency_changed' and target_id = ${id} order by id`;
    expect(rows.map(({ before, after }) => [before, after])).toEqual([
      [null, 'EUR'],
      ['EUR', 'JPY'],
      ['JPY', null],
    ]);
  });

  it.each([{}, { currency: 'XAU' }, { currency: '' }, { currency: 5 }, { currency: 'EUR', from: 'now' }])(
    'rejects the body %j',
    async (body) => {
      const { id, key } = await api().organization();
      const answer = await api().ask(pathOf(id), { key, method: 'PATCH', body });
      expect(answer).toMatchObject({ status: 400, body: { error: { code: 'VALIDATION_ERROR' } } });
      expect(answer.body.error.details).toHaveLength(1);
    },
  );
});
