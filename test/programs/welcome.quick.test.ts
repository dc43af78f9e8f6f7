import { describe, expect, it } from 'vitest';
import { firstStartText } from '#programs/welcome.ts';
import { engineDefinition } from '#test/fleet/test-fleet.ts';

describe('the text of the first start', () => {
  it.each([
    ['http://0.0.0.0:8080', 'http://127.0.0.1:8080'],
    ['http://[::]:8080', 'http://127.0.0.1:8080'],
  ])('has a local request for a gateway at %s, and a note for other machines', (url, here) => {
    const text = firstStartText(url, 'sk-hg-x', [engineDefinition({}, { id: 'chat' })]);
    expect(text).toContain(`curl ${here}/v1/chat/completions`);
    expect(text).toContain('elsewhere with the address of this machine');
    expect(text).not.toContain(`curl ${url}`);
  });

  it('has a request with the address of a gateway at one address', () => {
    const text = firstStartText('http://10.0.0.5:8080', 'sk-hg-x', [engineDefinition({}, { id: 'chat' })]);
    expect(text).toContain('Try it:\n\n  curl http://10.0.0.5:8080/v1/');
  });
});
