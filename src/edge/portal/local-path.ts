/** Where somebody wanted to go before signing in: pages of this portal, and nothing else. */

const pathPattern = /^\/(?:(?:portal(?:\/[A-Za-z0-9._~%-]+)*|invitation)(?:\?[A-Za-z0-9._~%&=+:,-]*)?)?$/;
const lengthMax = 2000;

/** The path as it was given where it is one of ours; else `/`. */
export function localPath(text: string): string {
  return text.length <= lengthMax && pathPattern.test(text) ? text : '/';
}

/** The page that asks to sign in, and then goes on to a path. */
export function signInPath(next: string): string {
  const path = localPath(next);
  return path === '/' ? '/' : `/?next=${encodeURIComponent(path)}`;
}
