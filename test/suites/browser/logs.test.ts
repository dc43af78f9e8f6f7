import { rmSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { parseId, uuidv7 } from '#base/id.ts';
import { standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { signIn, useBrowsers } from './browser.ts';

/** Logs that are followed go on by themselves after what passes, such as a gateway that is started again. */

const browsers = useBrowsers();
let gateway: TestGateway;
let folder: string;

beforeAll(async () => {
  folder = writeEngines({ chat: standinFile('chat', { flags: ['--access-log'] }) });
  gateway = await startGateway({ enginesDir: folder });
});

afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function openPage(): Promise<Page> {
  const { page } = await browsers.open();
  await signIn(page, gateway);
  return page;
}

describe('the engine log', () => {
  const ask = async (): Promise<void> => {
    const body = { model: 'chat', messages: [{ role: 'user', content: 'Hello!' }], max_tokens: 1 };
    expect((await gateway.request('/v1/chat/completions', { body })).status).toBe(200);
  };

  it('reconnects after 503, 429 and a cut connection, and says so', async () => {
    await ask();
    const page = await openPage();
    const failures: (number | 'cut')[] = [503, 'cut', 429];
    await page.route('**/portal/engines/chat/log', (route) => {
      const failure = failures.shift();
      if (failure === undefined) return route.continue();
      return failure === 'cut' ? route.abort('connectionreset') : route.fulfill({ status: failure });
    });
    await page.goto(`${gateway.url}/portal/engines/chat`);
    await page.getByText('The log is unavailable. Next retry in 2 seconds.').waitFor();
    await page.getByText('Next retry in 4 seconds').waitFor();
    await page.getByText('New lines appear automatically').waitFor();
    expect(failures).toEqual([]);
    const log = page.getByRole('log');
    const before = (await log.textContent()) ?? '';
    await ask();
    await expect.poll(() => log.textContent()).not.toBe(before);
  });

  it('stops after the session ends, says what to do, and keeps its lines', async () => {
    const page = await openPage();
    // The state above the log is asked for too, and would lead to the page to sign in.
    await page.route('**/portal/engines/chat', (route) =>
      route.request().headers()['hx-request'] === undefined ? route.continue() : route.fulfill({ status: 204 }),
    );
    await page.goto(`${gateway.url}/portal/engines/chat`);
    await page.getByText('New lines appear automatically').waitFor();
    const log = page.getByRole('log');
    await expect.poll(() => log.textContent()).toContain('POST /v1/chat/completions');
    await page.context().clearCookies();
    await page.getByText('The log could not be read. Reload the page.').waitFor();
    expect(await log.textContent()).toContain('POST /v1/chat/completions');
  });
});

describe('the run log', () => {
  /** A run that has ended, whose last lines the page does not have yet. */
  async function insertRun(): Promise<{ readonly id: string; readonly addLine: (seq: number) => Promise<void> }> {
    const organizations = await gateway.request('/v1/organizations');
    const { data } = (await organizations.json()) as { data: { id: string }[] };
    const owner = data[0]?.id ?? '';
    const made = await gateway.request('/v1/clusters', { body: { name: 'research', organization_id: owner } });
    const cluster = parseId('cluster', ((await made.json()) as { id: string }).id);
    const [id, installation] = [uuidv7(), uuidv7()];
    const { sql } = gateway.db;
    await sql`
      insert into installations (id, cluster_id, stack_id, stack_name, node, created_at)
      values (${installation}, ${cluster}, ${uuidv7()}, 'queue', 'gpu-1', now())`;
    await sql`
      insert into runs (id, installation_id, cluster_id, organization_id, stack_version_id, operation, status, inputs,
        created_at, ended_at, log_lines)
      values (${id}, ${installation}, ${cluster}, ${parseId('org', owner)}, ${uuidv7()}, 'apply', 'APPLIED', '', now(),
        now(), 4)`;
    const addLine = async (seq: number): Promise<void> => {
      await sql`
        insert into run_log (run_id, seq, at, phase, level, type, message)
        values (${id}, ${seq}, now(), 'apply', 'info', 'log', ${`line ${seq}`})`;
    };
    return { id: `run_${id.replaceAll('-', '')}`, addLine };
  }

  it('continues from its last line after a cut connection, 503 and 429, and says so', async () => {
    const { id, addLine } = await insertRun();
    await addLine(1);
    await addLine(2);
    const page = await openPage();
    const third = { seq: 3, at: new Date().toISOString(), phase: 'apply', level: 'info', message: 'line 3' };
    const cut = { contentType: 'text/event-stream', body: `retry: 1\nid: 3\ndata: ${JSON.stringify(third)}\n\n` };
    const answers = [cut, { status: 503 }, { status: 503 }, { status: 429 }];
    const asked: string[] = [];
    await page.route(`**/portal/runs/${id}/log?*`, (route) => {
      asked.push(new URL(route.request().url()).search);
      const answer = answers.shift();
      return answer === undefined ? route.continue() : route.fulfill(answer);
    });
    await page.goto(`${gateway.url}/portal/runs/${id}`);
    await page.getByText('The log is unavailable. Next retry in 2 seconds.').waitFor();
    await addLine(3);
    await addLine(4);
    await page.getByText('Next retry in 4 seconds').waitFor();
    await page.getByText('The run has ended. These are its last lines.').waitFor();
    const lines = (await page.locator('#log .log-line').allTextContents()).map((text) => /line \d/.exec(text)?.[0]);
    expect(lines).toEqual(['line 1', 'line 2', 'line 3', 'line 4']);
    expect(asked[0]).toBe('?after=2');
    expect(asked.at(-1)).toBe('?after=3');
    expect(answers).toEqual([]);
  });
});
