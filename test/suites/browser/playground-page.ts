import type { Locator } from 'playwright-core';
import type { TestGateway } from '#test/gateway.ts';
import type { Person } from './browser.ts';

/** Actions and parts of the playground, for tests. */
interface PlaygroundPage {
  /**
   * Opens the playground with nothing kept. It keeps its state when it is left, so the state is removed on another
   * page.
   */
  readonly open: (model: string) => Promise<void>;
  readonly ask: (text: string) => Promise<void>;
  /** The last answers. */
  readonly answers: () => Locator;
  /** The last answers that have ended so. */
  readonly ended: (how: 'complete' | 'early') => Locator;
}

export function playgroundOf(place: () => readonly [Person, TestGateway]): PlaygroundPage {
  const page = () => place()[0].page;
  return {
    async open(model) {
      const { url } = place()[1];
      await page().goto(new URL('/portal/models', url).href);
      await page().evaluate('sessionStorage.clear()');
      await page().goto(new URL(`/portal/playground?model=${model}`, url).href);
      await page().locator('#playground').waitFor();
    },
    async ask(text) {
      await page().getByLabel('Message').fill(text);
      await page().getByRole('button', { name: 'Send' }).click();
    },
    answers: () => page().locator('.exchange').last().locator('.answer'),
    ended: (how) => page().locator(`.exchange:last-child .answer[data-ended="${how}"]`),
  };
}
