import { randomUUID } from 'node:crypto';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { freePort } from '#test/free-port.ts';
import { linkIn, type MailServer, startMailServer } from '#test/mail.ts';
import { startOidcServer } from '#test/oidc.ts';
import { makePerson, passwordOf } from '#test/portal/visitor.ts';
import { expectPresentable, type Person, signIn, useBrowsers } from './browser.ts';

const browsers = useBrowsers();
let mail: MailServer;
let gateway: TestGateway;

beforeAll(async () => {
  mail = await startMailServer();
  const port = await freePort();
  gateway = await startGateway({
    env: { PORT: String(port), HEADGATE_PUBLIC_URL: `http://127.0.0.1:${port}`, HEADGATE_SMTP_URL: mail.url },
  });
});

afterAll(async () => {
  await gateway.stop();
  await mail.stop();
});

async function enter({ page }: Person, email: string, password: string): Promise<void> {
  await page.goto(gateway.url);
  await page.getByLabel('Email address').fill(email);
  await page.getByLabel('Password').fill(password);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
}

const overview = ({ page }: Person) => page.getByRole('heading', { name: 'Overview' }).waitFor();

it('shows an error for a wrong password, and leads to the requested page with the right one', async () => {
  const { email } = await makePerson(gateway);
  const person = await browsers.open();
  const { page } = person;
  await page.goto(`${gateway.url}/portal/account`);
  await page.getByLabel('Email address').fill(email);
  await page.getByLabel('Password').fill('not the password');
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('alert').waitFor();
  expect(await page.getByLabel('Email address').inputValue()).toBe(email);
  expect(await page.getByLabel('Password').inputValue()).toBe('');
  await expectPresentable(page, 'sign-in-wrong');
  await page.getByLabel('Password').fill(passwordOf);
  await page.getByRole('button', { name: 'Sign in', exact: true }).click();
  await page.getByRole('heading', { name: 'Account' }).waitFor();
  await expectPresentable(page, 'account');
  expect(person.complaints).toEqual([]);
});

it('sets a new password by an emailed link, and ends the session elsewhere', async () => {
  const { email } = await makePerson(gateway);
  const elsewhere = await browsers.open();
  await enter(elsewhere, email, passwordOf);
  await overview(elsewhere);
  const person = await browsers.open();
  const { page } = person;
  await page.goto(gateway.url);
  await page.getByRole('link', { name: 'Forgot password?' }).click();
  await page.getByRole('button', { name: 'Send reset link' }).waitFor();
  await expectPresentable(page, 'forgot');
  await page.getByLabel('Email address').fill(email);
  await page.getByRole('button', { name: 'Send reset link' }).click();
  await page.getByRole('heading', { name: 'Check your email' }).waitFor();
  await expectPresentable(page, 'forgot-sent');
  const link = linkIn(await mail.next(email), gateway.url);
  await page.goto(`${gateway.url}${link}`);
  await expectPresentable(page, 'reset-password');
  await page.getByLabel('New password').fill('short');
  await page.getByRole('button', { name: 'Set password' }).click();
  await page.getByText('must have 8 to 128 characters').waitFor();
  await page.getByLabel('New password').fill('a much better password');
  await page.getByRole('button', { name: 'Set password' }).click();
  await overview(person);
  await page.goto(`${gateway.url}${link}`);
  await page.getByRole('heading', { name: 'This link no longer works' }).waitFor();
  await expectPresentable(page, 'reset-password-stale');
  await elsewhere.page.getByRole('button', { name: 'Sign in', exact: true }).waitFor();
  expect([...person.complaints, ...elsewhere.complaints]).toEqual([]);
});

it('invites a new user by email, then to a second organization, and switches between the two', async () => {
  const email = `${randomUUID()}@example.com`;
  const admin = await browsers.open();
  await signIn(admin.page, gateway);
  await admin.page.getByRole('link', { name: 'Invitations' }).click();
  await expectPresentable(admin.page, 'invitations-empty');
  await admin.page.getByLabel('Email address').fill(email);
  await admin.page.getByLabel('Role').selectOption('admin');
  await admin.page.getByRole('button', { name: 'Invite' }).click();
  await admin.page.getByText(`was sent to ${email}`).waitFor();
  await expectPresentable(admin.page, 'invitations');
  const person = await browsers.open();
  const { page } = person;
  const invitation = `${gateway.url}${linkIn(await mail.next(email), gateway.url)}`;
  await page.goto(invitation);
  await expectPresentable(page, 'invitation');
  await page.getByLabel('Name').fill('Ada');
  await page.getByLabel('Password').fill(passwordOf);
  await page.getByRole('button', { name: 'Create account' }).click();
  await overview(person);
  await page.goto(invitation);
  await page.getByRole('heading', { name: 'This invitation no longer works' }).waitFor();
  await expectPresentable(page, 'invitation-stale');
  const opened = await gateway.request('/v1/organizations', { body: { name: 'Water Works' } });
  const { management_key: key } = (await opened.json()) as { management_key: string };
  expect((await gateway.request('/v1/invitations', { key, body: { email } })).status).toBe(201);
  await page.goto(`${gateway.url}${linkIn(await mail.next(email), gateway.url)}`);
  await expectPresentable(page, 'invitation-signed-in');
  await page.getByRole('button', { name: 'Join' }).click();
  await overview(person);
  const menu = page.locator('details.organizations');
  expect(await menu.locator('summary').textContent()).toBe('Water Works');
  expect(await page.getByRole('link', { name: 'Invitations' }).count()).toBe(0);
  await menu.locator('summary').click();
  await expectPresentable(page, 'organizations');
  await menu.getByRole('button').click();
  await page.getByRole('link', { name: 'Invitations' }).waitFor();
  expect(await menu.locator('summary').textContent()).not.toBe('Water Works');
  expect([...admin.complaints, ...person.complaints]).toEqual([]);
});

it('signs in by an OIDC provider once the user has an account', async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const provider = await startOidcServer(`${url}/sign-in/oidc/callback`);
  const closed = await startGateway({
    env: {
      PORT: String(port),
      HEADGATE_PUBLIC_URL: url,
      HEADGATE_OIDC_ISSUER: provider.issuer,
      HEADGATE_OIDC_CLIENT_ID: provider.clientId,
      HEADGATE_OIDC_CLIENT_SECRET: provider.clientSecret,
      HEADGATE_OIDC_NAME: 'Water & Co',
    },
  });
  try {
    const person = await browsers.open();
    const { page } = person;
    await page.goto(closed.url);
    await page.getByRole('link', { name: 'Sign in with Water & Co' }).waitFor();
    await expectPresentable(page, 'sign-in-oidc');
    const late = { email: `${randomUUID()}@example.com`, name: 'Late' };
    provider.person = { sub: randomUUID(), email: late.email, email_verified: true };
    await page.getByRole('link', { name: 'Sign in with Water & Co' }).click();
    await page.getByText('You have no account here').waitFor();
    await expectPresentable(page, 'oidc-no-account');
    const body = { ...late, password: 'long enough for 2 of us' };
    expect((await closed.request('/v1/users', { body })).status).toBe(201);
    await page.getByRole('link', { name: 'Back to sign-in' }).click();
    await page.getByRole('link', { name: 'Sign in with Water & Co' }).click();
    await overview(person);
    expect(person.complaints).toEqual([]);
  } finally {
    await closed.stop();
    await provider.stop();
  }
});
