import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { eventually, standinFile } from '#test/inference/inference-gateway.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** The page of an engine, with a stand-in that really runs. */

let folder = '';
let gateway: TestGateway;
let admin: Visitor;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'hg-engine-page-'));
  writeFileSync(join(folder, 'chat.yaml'), standinFile('chat'));
  writeFileSync(join(folder, 'broken.yaml'), standinFile('broken').replace('main.ts', 'not-there.ts'));
  gateway = await startGateway({ enginesDir: folder });
  admin = await signInVisitor(gateway);
});
afterAll(async () => {
  await gateway.stop();
  rmSync(folder, { recursive: true, force: true });
});

async function show(path: string): Promise<string> {
  const { text } = await admin.get(path);
  return text.replaceAll(/<[^>]*>/g, ' ').replaceAll(/\s+/g, ' ');
}

const chat = (model = 'chat') =>
  gateway.request('/v1/chat/completions', {
    body: { model, messages: [{ role: 'user', content: 'Hello' }], max_tokens: 4 },
  });

describe('the last start on the page of an engine', () => {
  it('is left out before the first start', async () => {
    expect(await show('/portal/engines/chat')).not.toContain('Last start');
  });

  it('shows each phase with its time and duration', async () => {
    expect((await chat()).status).toBe(200);
    const text = await show('/portal/engines/chat');
    expect(text).toMatch(
      /Last start .*Creates the container or process \d{4}-.*Loads the model, .*Runs canaries .*Ready to serve \d{4}-.*in total\./,
    );
  });

  it('shows why a start failed', async () => {
    expect((await chat('broken')).status).toBe(503);
    await eventually(async () => (await show('/portal/engines/broken')).includes('Failed'));
    expect(await show('/portal/engines/broken')).toMatch(
      /Last start .*Creates the container or process .*Failed [A-Z]/,
    );
  });
});
