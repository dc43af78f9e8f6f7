import { rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startGateway, type TestGateway } from '#test/gateway.ts';
import { standinFile, writeEngines } from '#test/inference/inference-gateway.ts';
import { signInVisitor, type Visitor } from '#test/portal/visitor.ts';

/** Reports on the page of engines about files that were read again. */

let gateway: TestGateway;
let admin: Visitor;
let enginesDir: string;
const file = standinFile('chat');

beforeAll(async () => {
  enginesDir = writeEngines({ chat: file });
  gateway = await startGateway({ enginesDir });
  admin = await signInVisitor(gateway);
});

afterAll(async () => {
  await gateway.stop();
  rmSync(enginesDir, { recursive: true, force: true });
});

const write = (text: string) => writeFileSync(join(enginesDir, 'chat.yaml'), text);

it('shows rejected engine files with the problems, and that the old ones stay in effect, until a valid reload', async () => {
  expect((await admin.get('/portal/engines')).text).toContain('No reloads yet');
  write(file.replace('context_length: 8192', 'context_length: "<b>many</b>"'));
  const refused = await admin.post('/portal/engines-reload');
  expect(refused.status).toBe(422);
  for (const { text } of [refused, await admin.get('/portal/engines'), await admin.get('/portal/engines')]) {
    expect(text).toContain('The engine files were rejected');
    expect(text).toContain('Engines use the files loaded at');
    expect(text).toContain('No successful reloads yet');
    expect(text).not.toContain('No reloads yet');
    expect(text).toMatch(/chat\.yaml:\d+: context_length: /);
    expect(text).not.toContain('<b>many');
    expect(text.match(/role="alert"/g)).toHaveLength(1);
  }
  write(file);
  const again = await admin.post('/portal/engines-reload');
  expect([again.status, again.headers.location]).toEqual([303, '/portal/engines?notice=reloaded']);
  const { text } = await admin.get('/portal/engines?notice=reloaded');
  expect(text).toContain('Engine files reloaded.');
  expect(text).not.toContain('The engine files were rejected');
});
