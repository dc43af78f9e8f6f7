import { describe, expect, it } from 'vitest';
import { uuidv7 } from '#base/id.ts';
import { useApi } from '#test/api/test-api.ts';
import { say } from '#test/cli/in-process.ts';
import { runCli } from '#test/cli/run-cli.ts';

const api = useApi();
const run = (args: readonly string[], key = api().admin) => say(args, { url: api().url, key });
const read = async (path: string, key = api().admin) => (await api().ask(path, { key })).body;

describe('headgate orgs', () => {
  it('rejects all but platform admins, and says how to get such a key', async () => {
    const { key } = await api().organization();
    const refused = await run(['orgs', 'ls'], key);
    expect(refused).toMatchObject({ code: 1, stdout: '' });
    expect(refused.stderr).toContain(
      'This route requires a management key of a platform administrator; the key in HEADGATE_API_KEY is not one',
    );
    expect(refused.stderr).toContain('or create one with "headgate keys recover" on the gateway\'s machine');
    expect(await run(['orgs', 'show', 'Nobody Ltd'])).toMatchObject({
      code: 1,
      stderr: 'headgate: no organization is named "Nobody Ltd"; "headgate orgs ls" lists the organizations\n',
    });
    expect((await run(['orgs', 'edit', 'x'])).stderr).toContain('nothing to change');
    expect((await run(['orgs', 'edit', 'x', '--max-active-keys', 'some'])).stderr).toContain('a number, or none');
  });

  it('lists the ids when several organizations have the name', async () => {
    const name = `Twins ${uuidv7()}`;
    const ids = [(await api().organization(name)).id, (await api().organization(name)).id];
    const { code, stderr } = await run(['orgs', 'show', name]);
    expect(code).toBe(1);
    for (const id of ids) expect(stderr).toContain(id);
  });

  it('creates an organization with a working key, limits, suspends, reactivates and closes it', async () => {
    const name = `Acme ${uuidv7()}`;
    const made = await run(['orgs', 'create', name]);
    const key = /sk-hg-\S+/.exec(made.stdout)?.[0] ?? '';
    const id = /org_[0-9a-f]{32}/.exec(made.stdout)?.[0] ?? '';
    expect(made.stdout).toContain(`headgate wallet credit USD --reference TEXT --org ${id}`);
    expect(await run(['wallet'], key)).toMatchObject({ code: 0, stdout: expect.stringContaining('balance    0') });

    const edited = await run(['orgs', 'edit', name, '--max-active-keys', '9', '--requests-per-minute', '7']);
    expect(edited).toMatchObject({ code: 0, stdout: expect.stringContaining('active; limits of new keys: 7/min') });
    expect(await read(`/v1/organizations/${id}`)).toMatchObject({ max_active_keys: 9 });
    await run(['wallet', 'credit', '3.5', '--reference', id, '--org', id]);
    const line = new RegExp(`^${id} +${name} +active +3.5 +0 +1 of 9 +7/min`, 'm');
    expect((await run(['orgs', 'ls'])).stdout).toMatch(line);
    await run(['orgs', 'edit', id, '--max-active-keys', 'none', '--wallet-alert-below', '2.50']);
    expect(await read(`/v1/organizations/${id}`)).toMatchObject({ max_active_keys: null, wallet_alert_below: '2.5' });
    await run(['orgs', 'edit', id, '--wallet-alert-below', 'none']);
    expect(await read(`/v1/organizations/${id}`)).toMatchObject({ wallet_alert_below: null, members_may_apply: true });
    await run(['orgs', 'edit', id, '--members-may-apply', 'off']);
    expect(await read(`/v1/organizations/${id}`)).toMatchObject({ members_may_apply: false });
    expect((await run(['orgs', 'edit', id, '--members-may-apply', 'maybe'])).stderr).toContain('must be on or off');

    // Nobody can be asked here.
    expect(await run(['orgs', 'suspend', name])).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('nothing was suspended; add --yes'),
    });
    expect((await run(['orgs', 'suspend', name, '--yes'])).stdout).toContain(': suspended;');
    const suspended = await run(['wallet'], key);
    // Another key fixes nothing.
    expect(suspended.stderr).toMatch(/^headgate: This organization is suspended\. Contact the operator\.\n {2}request/);
    expect((await run(['orgs', 'resume', name])).code).toBe(0);
    expect((await run(['wallet'], key)).code).toBe(0);
    expect((await run(['orgs', 'close', name, '-y'])).stdout).toContain(': closed;');
    expect((await run(['orgs', 'ls'])).stdout).not.toContain(id);
    expect((await run(['orgs', 'ls', '--all'])).stdout).toMatch(new RegExp(`^${id} .* closed `, 'm'));
  });
});

describe('headgate users', () => {
  it('names missing options, and accepts no password on the command line', async () => {
    expect((await run(['users', 'create', 'a@example.com'])).stderr).toContain('--name is missing');
    expect((await run(['users', 'show', 'nobody@example.com'])).stderr).toContain('no user has the email address');
    expect((await run(['users', 'edit', 'x'])).stderr).toContain('nothing to change');
    expect((await run(['users', 'create', 'a@b.c', '--name', 'A', '--role', 'boss'])).code).toBe(2);
    const env = { HEADGATE_URL: api().url, HEADGATE_API_KEY: api().admin };
    const none = await runCli(['users', 'create', 'a@example.com', '--name', 'A'], { env, input: '' });
    expect(none).toMatchObject({ code: 2, stderr: expect.stringContaining('one line for each of: Password') });
  });

  it('creates, changes and deletes a user', async () => {
    const { id, key } = await api().organization();
    const env = { HEADGATE_URL: api().url, HEADGATE_API_KEY: key };
    const email = `ada-${uuidv7()}@example.com`;
    const args = ['users', 'create', email, '--name', 'Ada', '--role', 'admin'];
    const made = await runCli(args, { env, input: 'a long password\n' });
    expect(made).toMatchObject({ code: 0, stdout: expect.stringContaining(`${email}: admin of ${id}\n`) });
    expect((await run(['users', 'ls'], key)).stdout).toMatch(
      new RegExp(`^user_\\w+ +${email} +user +admin of ${id} +Ada$`, 'm'),
    );
    const edited = await runCli(['users', 'edit', email, '--role', 'member', '--password'], {
      env,
      input: 'another one, long\n',
    });
    expect(edited).toMatchObject({ code: 0, stdout: expect.stringContaining(`: member of ${id}`) });
    expect((await run(['users', 'show', email.toUpperCase(), '--json'], key)).stdout).toContain('"name": "Ada"');
    expect((await run(['users', 'rm', email], key)).code).toBe(2);
    expect(await run(['users', 'rm', email, '--yes'], key)).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('removed'),
    });
    expect((await run(['users', 'ls'], key)).stdout).not.toContain(email);
  });

  it('invites by a link that is shown once, and revokes the invitation', async () => {
    const { id, key } = await api().organization();
    const email = `eve-${uuidv7()}@example.com`;
    expect((await run(['users', 'invite', 'nobody'], key)).code).toBe(1);
    expect((await run(['users', 'invite', email, '--role', 'boss'], key)).code).toBe(2);
    expect((await run(['users', 'invitations'], key)).stdout).toContain('no open invitations');
    expect((await run(['users', 'uninvite', email, '--yes'], key)).stderr).toContain(
      `there is no open invitation for "${email}"; "headgate users invitations" lists them`,
    );

    const made = await run(['users', 'invite', email, '--role', 'admin'], key);
    expect(made).toMatchObject({ code: 0, stdout: expect.stringContaining(`${email}: invited as admin\n`) });
    const link = new RegExp(`^ {2}(${api().url}/\\S+)$`, 'm').exec(made.stdout)?.[1] ?? '';
    const token = new URL(link).searchParams.get('token') ?? '';
    expect((await api().accounts.users.invitations.find(token))?.invitation.email).toBe(email);
    const listed = await run(['users', 'invitations', '--org', id]);
    expect(listed.stdout).toMatch(new RegExp(`^inv_\\w+ +${email} +admin +\\d{4}-`, 'm'));
    expect(listed.stdout).not.toContain(token);
    expect(JSON.parse((await run(['users', 'invitations', '--json'], key)).stdout).data).toHaveLength(1);

    expect(await run(['users', 'uninvite', email], key)).toMatchObject({
      code: 2,
      stderr: expect.stringContaining('nothing was revoked; add --yes'),
    });
    expect((await run(['users', 'uninvite', email.toUpperCase(), '--yes'], key)).stdout).toContain('revoked');
    expect(await api().accounts.users.invitations.find(token)).toBeNull();
  });

  it('creates a password reset link, for members of the own organization only', async () => {
    const { id, key } = await api().organization();
    const other = await api().organization();
    const env = { HEADGATE_URL: api().url, HEADGATE_API_KEY: key };
    const email = `ada-${uuidv7()}@example.com`;
    await runCli(['users', 'create', email, '--name', 'Ada'], { env, input: 'a long password\n' });
    expect(await run(['users', 'reset-link', email], other.key)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('no user has the email address'),
    });
    for (const args of [[], ['--org', id]]) {
      const made = await run(['users', 'reset-link', email, ...args], args.length === 0 ? key : api().admin);
      expect(made).toMatchObject({
        code: 0,
        stdout: expect.stringContaining(`a new password for ${email}: send this link`),
      });
      const link = new RegExp(`^ {2}(${api().url}/reset-password\\S+)$`, 'm').exec(made.stdout)?.[1] ?? '';
      const token = new URL(link).searchParams.get('token') ?? '';
      expect(await api().accounts.users.resetLinks.isOpen(token)).toBe(true);
    }
  });
});

describe('headgate service-accounts', () => {
  it('creates an account with a working key, lists it, adds a key and deletes it', async () => {
    const { key } = await api().organization();
    const { code, stderr } = await run(['service-accounts', 'ls', '--project', 'nowhere'], key);
    expect([code, stderr]).toEqual([1, expect.stringContaining('"headgate projects ls" lists the projects')]);
    expect((await run(['service-accounts', 'ls'], key)).stdout).toContain('no service accounts in this project');
    expect((await run(['service-accounts', 'rm', 'none', '-y'], key)).stderr).toContain('is named "none"');
    const made = await run(['service-accounts', 'create', 'nightly', '--project', 'default', '--expiry', '7d'], key);
    const [id = '', secret = ''] = [/svc_acct_\w{32}/, /sk-hg-\S+/].map((one) => one.exec(made.stdout)?.[0]);
    expect(made.stdout).toMatch(/^service account "nightly" \(.*until \d{4}-/);
    expect((await run(['usage', 'requests'], secret)).code).toBe(0);
    expect((await run(['service-accounts', 'ls'], key)).stdout).toMatch(new RegExp(`^${id} +nightly `, 'm'));
    const bare = await run(['service-accounts', 'create', 'bare', '--no-key', '--json'], key);
    expect(JSON.parse(bare.stdout)).toMatchObject({ name: 'bare', api_key: null });
    const second = await run(['keys', 'create', 'second', '--service-account', id], key);
    expect(second.stdout).toContain('inference key "second"');
    const its = await run(['keys', 'ls', '--service-account', id, '--json'], key);
    expect(JSON.parse(its.stdout).data.map(({ name }: { name: string }) => name)).toEqual(['second', 'nightly']);
    expect((await run(['service-accounts', 'rm', 'nightly'], key)).code).toBe(2);
    const gone = await run(['service-accounts', 'rm', 'nightly', '--yes'], key);
    expect(gone.stdout).toBe(`${id} "nightly": deleted\n`);
    expect((await run(['usage', 'requests'], secret)).code).toBe(1);
  });

  it('deletes the account with an id, and not one with that id as its name', async () => {
    const { key } = await api().organization();
    const made = await run(['service-accounts', 'create', 'meant', '--no-key', '--json'], key);
    const { id } = JSON.parse(made.stdout);
    await run(['service-accounts', 'create', id, '--no-key'], key);
    const gone = await run(['service-accounts', 'rm', id, '--yes'], key);
    expect(gone.stdout).toBe(`${id} "meant": deleted\n`);
  });
});

describe('headgate projects', () => {
  it('creates, changes, archives and unarchives a project', async () => {
    const { key } = await api().organization();
    expect((await run(['projects', 'archive', 'none'], key)).stderr).toContain(
      '"headgate projects ls" lists the projects',
    );
    const made = await run(
      ['projects', 'create', 'search', '--description', 'of papers', '--visibility', 'public'],
      key,
    );
    expect(made).toMatchObject({ code: 0, stdout: expect.stringMatching(/^proj_\w+ "search": active\n$/) });
    expect((await run(['projects', 'ls'], key)).stdout).toMatch(/^proj_\w+ +search +organization +active +of papers$/m);
    expect((await run(['projects', 'edit', 'search', '--name', 'find'], key)).stdout).toContain('"find": active');
    expect((await run(['projects', 'archive', 'find'], key)).stderr).toContain('There is no terminal to confirm on');
    expect((await run(['projects', 'archive', 'find', '--yes'], key)).stdout).toContain('"find": archived');
    expect((await run(['projects', 'unarchive', 'find'], key)).stdout).toContain('"find": active');
    expect((await run(['projects', 'show', 'find'], key)).stdout).toContain('visibility: public\n');
  });
});

describe('headgate audit', () => {
  it('lists actor, change and former value, by kind or by target', async () => {
    const { id, key } = await api().organization();
    await run(['orgs', 'edit', id, '--name', 'Renamed']);
    await run(['projects', 'create', 'one'], key);
    const all = await run(['audit'], key);
    expect(all.stdout).toMatch(/^TIME \(UTC\) +ACTION +TARGET +ACTOR +CHANGES\n/);
    const renamed = await run(['audit', '--target', id, '--org', id]);
    // The operator's key is of another organization than the one that is looked at.
    const [entry] = JSON.parse((await run(['audit', '--target', id, '--org', id, '--json'])).stdout).data;
    const { name } = await read(`/v1/keys/${entry.actor.id}`);
    expect(renamed.stdout).toMatch(new RegExp(` ${id} +key ${name} +name: .* → Renamed`, 'm'));
    expect(renamed.stdout).not.toContain('key_');
    // A caller who may not read the operator's keys gets their ids.
    expect((await run(['audit', '--target', id], key)).stdout).toMatch(new RegExp(` ${id} +${entry.actor.id} +name: `));
    expect((await run(['audit', '--action', 'project.created'], key)).stdout).toMatch(/ key (?!key_)\S.* name: one/);
    expect((await run(['audit', '--action', 'nothing.of.this'], key)).stdout).toBe('no matching changes\n');
    expect(JSON.parse((await run(['audit', '--limit', '1', '--json'], key)).stdout).data).toHaveLength(1);
    const ofAll = await run(['audit', '--org', 'all', '--action', 'organization.changed', '--limit', '1']);
    expect(ofAll.stdout).toMatch(new RegExp(`^ORGANIZATION +TIME \\(UTC\\).*\n${id} .* name: .* → Renamed`));
    expect((await run(['audit', '--org', 'all'], key)).code).toBe(1);
  });
});
