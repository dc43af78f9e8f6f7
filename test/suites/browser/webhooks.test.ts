import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type LocalReceiver, startLocalReceiver } from '#test/alerts/local-receiver.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let receiver: LocalReceiver;
let gateway: TestGateway;
let person: Person;

beforeAll(async () => {
  receiver = await startLocalReceiver();
  gateway = await startGateway({ env: { HEADGATE_WEBHOOK_HOSTS: receiver.host } });
  person = await browsers.open();
  await signIn(person.page, gateway);
});

afterAll(async () => {
  await gateway.stop();
  await receiver.close();
});

const show = async (path: string, name: string): Promise<void> => {
  await person.page.goto(new URL(path, gateway.url).href);
  await expectPresentable(person.page, name);
};

describe('the webhook pages', () => {
  it('create a webhook, show its secret once and its deliveries, and resend one', async () => {
    const { page } = person;
    await show('/portal/webhooks', 'webhooks-empty');
    await page.getByRole('link', { name: 'New webhook' }).click();
    await page.getByLabel('URL').fill('https://10.0.0.5/in');
    await page.getByRole('button', { name: 'Create webhook' }).click();
    await page.locator('#url-problem').waitFor();
    await expectPresentable(page, 'webhook-new');
    await page.getByLabel('URL').fill(receiver.url);
    await page.getByLabel('Description').fill('Pager of the night');
    await page.getByLabel('All events').uncheck();
    await page.getByLabel('Budget exceeded').check();
    await page.getByRole('button', { name: 'Create webhook' }).click();
    await page.getByText('Copy the secret now. It is shown only once.').waitFor();
    expect(await page.locator('#secret').textContent()).toMatch(/^whsec_/);
    await expectPresentable(page, 'webhook-made');
    await page.getByRole('link', { name: 'View webhook' }).click();
    await page.getByText('No deliveries yet').waitFor();
    receiver.status = 500;
    await page.getByRole('button', { name: 'Send test' }).click();
    await page.getByText('Test requested.').waitFor();
    await expect.poll(() => receiver.got.length).toBe(1);
    const state = async (): Promise<string> => {
      await page.reload();
      return (await page.locator('main').textContent()) ?? '';
    };
    await expect.poll(state).toContain('HTTP 500');
    await expectPresentable(page, 'webhook');
    receiver.status = 204;
    await page.getByRole('button', { name: /^Redeliver evt_/ }).click();
    await page.getByText('Redelivery requested.').waitFor();
    await expect.poll(() => receiver.got.length).toBe(2);
    expect(new Set(receiver.got.map(({ headers }) => headers['webhook-id'])).size).toBe(1);
    await page.getByRole('link', { name: 'Rotate secret' }).click();
    await expectPresentable(page, 'webhook-rotate');
    await page.getByRole('button', { name: 'Rotate secret' }).click();
    await page.getByText('The former secret is valid until').waitFor();
    await page.getByRole('link', { name: 'View webhook' }).click();
    await page.getByRole('link', { name: 'Delete' }).click();
    await expectPresentable(page, 'webhook-delete');
    await page.getByRole('link', { name: 'Cancel' }).click();
    await show('/portal/webhooks', 'webhooks');
    await page.getByLabel('Engine failed').check();
    await page.getByRole('button', { name: 'Save' }).click();
    await page.getByText('Email alerts saved.').waitFor();
    expect(person.complaints).toEqual([]);
  });
});
