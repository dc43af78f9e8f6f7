/** The page that a visitor wanted before signing in. Only pages of this portal are accepted. */

const pathPattern = /^\/(?:(?:portal(?:\/[A-Za-z0-9._~%-]+)*|invitation)(?:\?[A-Za-z0-9._~%&=+:,-]*)?)?$/;
const lengthMax = 2000;

/** Returns the text if it is a path of the portal; otherwise `/`. */
export function localPath(text: string): string {
  return text.length <= lengthMax && pathPattern.test(text) ? text : '/';
}

/** Returns the path of the sign-in page, which continues to `next`. */
export function signInPath(next: string): string {
  const path = localPath(next);
  return path === '/' ? '/' : `/?next=${encodeURIComponent(path)}`;
}
