/** Browser names with their patterns. A browser that imitates another one comes before it. */
const browsers = [
  ['Edge', /\bEdg(?:A|iOS)?\/(\d+)/],
  ['Opera', /\bOPR\/(\d+)/],
  ['Firefox', /\b(?:Firefox|FxiOS)\/(\d+)/],
  ['Chrome', /\b(?:HeadlessChrome|Chrome|CriOS)\/(\d+)/],
  ['Safari', /\bVersion\/(\d+)\S* (?:Mobile\/\S+ )?Safari\//],
] as const;

const systems = [
  ['Android', /\bAndroid\b/],
  ['iOS', /\b(?:iPhone|iPad)\b/],
  ['Windows', /\bWindows\b/],
  ['macOS', /\bMac OS X\b/],
  ['ChromeOS', /\bCrOS\b/],
  ['Linux', /\bLinux\b/],
] as const;

/** Returns "Firefox 151 on Linux" for a user agent; null for an unknown browser. */
export function browserName(userAgent: string): string | null {
  for (const [name, pattern] of browsers) {
    const version = pattern.exec(userAgent)?.[1];
    if (version === undefined) continue;
    const system = systems.find(([, known]) => known.test(userAgent))?.[0];
    return `${name} ${version}${system === undefined ? '' : ` on ${system}`}`;
  }
  return null;
}
