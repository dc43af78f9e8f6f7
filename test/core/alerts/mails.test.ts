import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { AppError } from '#base/errors.ts';
import { parseId, uuidv7 } from '#base/id.ts';
import type { Letter } from '#base/mail.ts';
import { budgetData } from '#test/alerts/scene.ts';
import { type TestApi, startApi } from '#test/api/test-api.ts';

const hourMs = 3_600_000;
const letters: Letter[] = [];
/** Addresses whose letters the mail server does not take. */
const refused = new Set<string>();

let api: TestApi;

beforeAll(async () => {
  const mailer = {
    send(letter: Letter): Promise<void> {
      if (refused.has(letter.to)) return Promise.reject(new AppError('mail_unavailable'));
      letters.push(letter);
      return Promise.resolve();
    },
  };
  api = await startApi({ mailer });
});

afterAll(() => api.stop());

beforeEach(() => {
  letters.length = 0;
  refused.clear();
});

interface Tenant {
  readonly id: string;
  readonly key: string;
}

async function person({ key }: Tenant, role: string): Promise<{ id: string; email: string }> {
  const email = `${uuidv7()}@example.com`;
  const made = await api.ask('/v1/users', { body: { name: 'Ada', email, password: 'correct horse', role }, key });
  expect(made.status).toBe(201);
  return { id: made.body.id, email };
}

async function deliver(): Promise<void> {
  await api.alerts.deliver();
  await api.alerts.settled();
}

const leak = ({ id }: Tenant): Promise<void> =>
  api.alerts.raise({
    organizationId: parseId('org', id) ?? '',
    type: 'budget.exceeded',
    data: budgetData('Team\r\nBcc: all@example.com'),
  });

const addresses = (): string[] => letters.map(({ to }) => to).toSorted();

describe('an alert by mail', () => {
  it('is sent only to owners and administrators of the organization', async () => {
    const [tenant, other] = [await api.organization('Ours'), await api.organization('Other')];
    const [admin, owner] = [await person(tenant, 'admin'), await person(tenant, 'admin')];
    await person(tenant, 'member');
    await person(other, 'admin');
    await leak(tenant);
    await deliver();
    expect(addresses()).toEqual([admin.email, owner.email].toSorted());
    for (const { subject, text } of letters) {
      expect(subject).not.toMatch(/[\r\n]/);
      expect(text).toContain('11 USD of 10 USD');
    }
    await deliver();
    expect(letters).toHaveLength(2);
  });

  it("contains no lines or control characters from an end user's name", async () => {
    const tenant = await api.organization('Named');
    await person(tenant, 'admin');
    const lines = ['Ada" on Headgate.', 'Sign in at https://evil.example/', '\u202e\u001b[2J', 'x'.repeat(300)];
    await api.alerts.raise({
      organizationId: parseId('org', tenant.id) ?? '',
      type: 'budget.exceeded',
      data: budgetData(lines.join('\r\n\r\n\u2028')),
    });
    await deliver();
    const [letter] = letters;
    const about = letter?.text.split(/\r?\n|\r|\u2028/).filter((line) => line.includes('evil.example'));
    expect(about).toEqual([expect.stringMatching(/^The daily budget of the end user ".{80}…" of the organization/)]);
    expect(letter?.text.replaceAll('\n', '')).not.toMatch(/\p{C}/u);
  });

  it('about many end users gives their number, and the final number when the period is over', async () => {
    const tenant = await api.organization('Many');
    await person(tenant, 'admin');
    // A recipient who chose the general event gets it, too.
    const chosen = { alert_emails: ['budget.exceeded'] };
    await api.ask(`/v1/organizations/${tenant.id}`, { method: 'PATCH', body: chosen, key: tenant.key });
    const { scope_id: _id, spent: _spent, ...data } = budgetData('');
    for (const is_over of [false, true]) {
      const organizationId = parseId('org', tenant.id) ?? '';
      const many = { ...data, percent: 80, alerts: 100, end_users: 1203, is_over };
      await api.alerts.raise({ organizationId, type: 'budget.many_users', data: many });
      await deliver();
    }
    expect(letters.map(({ subject }) => subject)).toEqual(
      Array.from({ length: 2 }, () => 'Many end users of Many have reached their budget'),
    );
    const [first, last] = letters.map(({ text }) => text.replaceAll(/\s+/g, ' '));
    expect(first).toContain('has sent 100 alerts in the period that began on 2026-11-24, the maximum');
    expect(first).toContain('1203 end users have spent 80 % or more of their budget');
    expect(last).toContain('the period that began on 2026-11-24 has ended. 1203 end users');
  });

  it('names the stack, place and deadline of a run, and the silent nodes of a cluster', async () => {
    const tenant = await api.organization('Runners');
    const organizationId = parseId('org', tenant.id) ?? '';
    const { email } = await person(tenant, 'admin');
    const run = {
      run_id: 'run_1',
      status: 'PLANNED',
      failure_code: null,
      operation: 'apply',
      stack: 'scheduler',
      stack_version: 2,
      cluster_id: 'cluster_1',
      cluster: 'research',
      node: 'gpu-1',
      created_by: null,
      created_via: 'api',
      plan: null,
      confirm_by: '2026-11-25T12:00:00.000Z',
    };
    const failed = { ...run, status: 'FAILED', failure_code: 'APPLY_FAILED', node: null, confirm_by: null };
    const nodes = [{ id: 'node_1', name: 'gpu-1', last_seen_at: null }];
    const silence = { cluster_id: 'cluster_1', cluster: 'research', count: 22, nodes, silence_seconds: 900 };
    await api.alerts.raise({ organizationId, type: 'run.needs_confirmation', data: run });
    await api.alerts.raise({ organizationId, type: 'run.failed', data: failed });
    await api.alerts.raise({ organizationId, type: 'run.succeeded', data: { ...run, status: 'APPLIED' } });
    await api.alerts.raise({ organizationId, type: 'cluster.nodes_silent', data: silence });
    const { status: _, failure_code: _code, plan: _plan, confirm_by: _by, ...named } = run;
    const drift = { check_run_id: 'run_2', changed: 2, deleted: 1 };
    await api.alerts.raise({ organizationId, type: 'run.drifted', data: { ...named, ...drift } });
    await deliver();
    expect(addresses()).toEqual([email, email, email, email]);
    const sorted = letters.toSorted((one, other) => one.subject.localeCompare(other.subject));
    const [silent, fails, waits, drifted] = sorted.map(({ text }) => text.replaceAll(/\s+/g, ' '));
    expect(waits).toContain('The apply of "scheduler" on the cluster research (node gpu-1) of the organization');
    expect(waits).toContain('Confirm or discard the plan by 2026-11-25 12:00');
    expect(fails).toContain(
      '"scheduler" on the cluster research of the organization "Runners" on Headgate failed with',
    );
    expect(drifted).toContain('outside of Headgate: 2 changed, 1 deleted.');
    expect(silent).toContain('fell silent: gpu-1 and 21 more.');
  });

  it('is not sent for types that were not chosen, nor for a closed organization', async () => {
    const tenant = await api.organization('Choosy');
    await person(tenant, 'admin');
    const body = { alert_emails: ['wallet.low_balance'] };
    expect((await api.ask(`/v1/organizations/${tenant.id}`, { method: 'PATCH', body, key: tenant.key })).status).toBe(
      200,
    );
    await leak(tenant);
    await deliver();
    expect(letters).toEqual([]);
    await api.ask(`/v1/organizations/${tenant.id}`, { method: 'PATCH', body: { alert_emails: null }, key: tenant.key });
    await api.ask(`/v1/organizations/${tenant.id}`, { method: 'DELETE' });
    await leak(tenant);
    await deliver();
    expect(letters).toEqual([]);
  });

  it('is retried for recipients that it did not reach, not for others', async () => {
    const tenant = await api.organization('Patient');
    const [reached, unreached] = [await person(tenant, 'admin'), await person(tenant, 'admin')];
    refused.add(unreached.email);
    await leak(tenant);
    await deliver();
    expect(addresses()).toEqual([reached.email]);
    refused.clear();
    await deliver();
    expect(letters).toHaveLength(1);
    api.turnClock(hourMs);
    await deliver();
    expect(addresses()).toEqual([reached.email, unreached.email].toSorted());
  });

  it('is not sent to a user who has left before the retry', async () => {
    const tenant = await api.organization('Left');
    const [staying, leaving] = [await person(tenant, 'admin'), await person(tenant, 'admin')];
    refused.add(leaving.email);
    await leak(tenant);
    await deliver();
    expect((await api.ask(`/v1/users/${leaving.id}`, { method: 'DELETE', key: tenant.key })).status).toBe(204);
    refused.clear();
    api.turnClock(hourMs);
    await deliver();
    expect(addresses()).toEqual([staying.email]);
    const pending = await api.db.sql`select 1 from alert_deliveries where status = 'pending'`;
    expect(pending).toHaveLength(0);
  });
});
