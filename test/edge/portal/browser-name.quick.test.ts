import { describe, expect, it } from 'vitest';
import { browserName } from '#edge/portal/sign-in/browser-name.ts';

const webkit = 'AppleWebKit/537.36 (KHTML, like Gecko)';

describe('the name of a browser', () => {
  it.each(['', 'curl/8.14.1', 'Mozilla/5.0', 'Safari/537.36', 'Firefox/', `Mozilla/5.0 (X11; Linux x86_64) ${webkit}`])(
    'is missing for an unknown browser: %j',
    (userAgent) => {
      expect(browserName(userAgent)).toBeNull();
    },
  );

  it.each([
    ['Firefox 151 on Linux', 'Mozilla/5.0 (X11; Linux x86_64; rv:151.0) Gecko/20100101 Firefox/151.0'],
    ['Chrome 142 on Windows', `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${webkit} Chrome/142.0.0.0 Safari/537.36`],
    ['Chrome 156 on Linux', `Mozilla/5.0 (X11; Linux x86_64) ${webkit} HeadlessChrome/156.0.0.0 Safari/537.36`],
    ['Chrome 142 on Android', `Mozilla/5.0 (Linux; Android 10; K) ${webkit} Chrome/142.0.0.0 Mobile Safari/537.36`],
    [
      'Edge 142 on Windows',
      `Mozilla/5.0 (Windows NT 10.0; Win64; x64) ${webkit} Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0`,
    ],
    [
      'Safari 26 on macOS',
      'Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Safari/605.1.15',
    ],
    [
      'Safari 26 on iOS',
      'Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/26.0 Mobile/15E148 Safari/604.1',
    ],
  ])('is the well-known one: %s', (name, userAgent) => {
    expect(browserName(userAgent)).toBe(name);
  });
});
