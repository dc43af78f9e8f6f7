import { crc32 } from 'node:zlib';
import { packOf, rawZip, type RawEntry } from '#test/stacks/raw-zip.ts';

/** Packages that somebody who means harm would send, with what the refusal says. */
export interface HostilePackage {
  readonly what: string;
  readonly zip: () => Buffer;
  /** Field and a part of the message of a problem that must be reported. */
  readonly problem: readonly [field: string, message: string];
}

const main: RawEntry = { name: 'main.tf', content: 'output "x" {\n  value = 1\n}\n' };
const withMain =
  (...entries: RawEntry[]): (() => Buffer) =>
  () =>
    rawZip([main, ...entries]);
const one = (what: string, entry: RawEntry, message: string, field = String(entry.name)): HostilePackage => ({
  what,
  zip: withMain(entry),
  problem: [field, message],
});
const hcl = (what: string, text: string, message: string, field = 'main.tf'): HostilePackage => ({
  what,
  zip: () => packOf({ 'main.tf': text }),
  problem: [field, message],
});
const manifest = (what: string, text: string, field: string, message: string): HostilePackage => ({
  what,
  zip: () => packOf({ 'manifest.yaml': text }),
  problem: [field, message],
});

const unicodePath = (raw: string, other: string): Buffer => {
  const data = Buffer.concat([Buffer.from([1]), crcOf(raw), Buffer.from(other)]);
  const head = Buffer.alloc(4);
  head.writeUInt16LE(0x7075, 0);
  head.writeUInt16LE(data.length, 2);
  return Buffer.concat([head, data]);
};

function crcOf(text: string): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(crc32(text));
  return bytes;
}

const zeros = (mebibytes: number): Buffer => Buffer.alloc(mebibytes * 1024 * 1024);

const names: readonly HostilePackage[] = [
  one('a name that goes up', { name: '../evil.tf', content: 'x' }, 'leads out of the package'),
  one('a name that goes up in its middle', { name: 'a/../../evil', content: 'x' }, 'leads out'),
  one('an absolute name', { name: '/etc/cron.d/evil', content: 'x' }, 'leads out'),
  one('a name with a drive', { name: 'C:evil', content: 'x' }, 'leads out'),
  one('a name with backslashes', { name: '..\\evil', content: 'x' }, 'leads out'),
  one('no name', { name: '', content: 'x' }, 'has no name', ''),
  one('a name with an empty part', { name: 'a//b', content: 'x' }, 'empty part'),
  one('a name with a dot for a part', { name: './a', content: 'x' }, 'empty part or "."'),
  one('a name with NUL', { name: 'a\0.tf', content: 'x' }, 'control characters', 'a\u{fffd}.tf'),
  one('a name with a line break', { name: 'a\nb', content: 'x' }, 'control characters', 'a\u{fffd}b'),
  one('a name with an escape sequence', { name: '\u001b[2Ja', content: 'x' }, 'control characters', '\u{fffd}[2Ja'),
  one(
    'a name that is not UTF-8',
    { name: Buffer.from([0x61, 0xff, 0xfe]), content: 'x' },
    'not UTF-8',
    'a\u{fffd}\u{fffd}',
  ),
  one('a very long name', { name: 'a'.repeat(300), content: 'x' }, 'is longer than', `${'a'.repeat(200)}…`),
  one('two names', { name: 'a', content: 'x', extra: unicodePath('a', '../b') }, 'has two names'),
  one(
    'another name in its local header',
    { name: 'good.txt', localName: 'evil.txt', content: 'x' },
    'a different name',
  ),
  { what: 'a name twice', zip: withMain(main), problem: ['main.tf', 'is in the package twice'] },
  one('a name twice but for its case', { name: 'MAIN.tf', content: 'x' }, 'differs from main.tf only in case'),
  {
    what: 'a name twice but for its composition',
    zip: withMain({ name: 'caf\u00e9', content: 'x' }, { name: 'cafe\u0301', content: 'y' }),
    problem: ['cafe\u0301', 'only in case'],
  },
  one(
    'a file below a file',
    { name: 'main.tf/evil', content: 'x' },
    'in a folder whose name another entry uses for a file',
  ),
];

const kinds: readonly HostilePackage[] = [
  one('a symbolic link', { name: 'link', content: '/etc/passwd', mode: 0o120_777 }, 'a symbolic link'),
  one('a symbolic link as its module', { name: 'a.tf', content: '/etc/passwd', mode: 0o120_777 }, 'a symbolic link'),
  one('a FIFO', { name: 'pipe', mode: 0o010_644 }, 'a FIFO'),
  one('a character device', { name: 'tty', mode: 0o020_644 }, 'a character device'),
  one('a block device', { name: 'sda', mode: 0o060_644 }, 'a block device'),
  one('a socket', { name: 'sock', mode: 0o140_644 }, 'a socket'),
  one('an unknown type', { name: 'odd', mode: 0o030_644 }, 'of an unknown type'),
  one('a folder by mode alone', { name: 'folder', mode: 0o040_755 }, 'disagree on whether it is a file or a folder'),
  one(
    'a file by mode with the name of a folder',
    { name: 'folder/', mode: 0o100_644 },
    'disagree on whether it is a file or a folder',
  ),
  one('a folder with content', { name: 'folder/', content: 'x', mode: 0o040_755 }, 'is a folder with content'),
  one('an encrypted file', { name: 'a', content: 'x', flags: 0x801 }, 'is encrypted'),
  one('another compression', { name: 'a', content: 'x', method: 12 }, 'a compression other than deflate'),
];

const sizes: readonly HostilePackage[] = [
  one(
    'a size that is too small',
    { name: 'a', content: zeros(1), deflate: true, size: 10 },
    'inflates to more than the 10',
  ),
  one(
    'a size that is too large',
    { name: 'a', content: 'x', deflate: true, size: 10 },
    'has 1 bytes, but its zip says 10',
  ),
  one('two sizes of what is stored', { name: 'a', content: 'xyz', size: 4 }, 'has two different sizes'),
  one('a wrong checksum', { name: 'a', content: 'x', crc: 1 }, 'is damaged'),
  one('a broken stream', { name: 'a', content: Buffer.from('\xff\xff\xff', 'latin1'), method: 8, size: 9 }, 'damaged'),
  one(
    'bytes behind a stream',
    { name: 'a', content: 'x', deflate: true, trailing: Buffer.from('evil') },
    'after its end',
  ),
  one('an end beyond the zip', { name: 'a', content: 'x', compressedSize: 1e6, size: 1e6 }, 'ends beyond'),
  one('a header elsewhere', { name: 'a', content: 'x', shift: 3 }, 'not at the offset in the directory'),
  one('another method in its local header', { name: 'a', content: 'x', localMethod: 8 }, 'different method'),
  one('a file of 11 MiB', { name: 'a', content: zeros(11), deflate: true }, 'is larger than 10 MiB'),
  {
    what: 'a bomb of many files',
    zip: () =>
      rawZip([main, ...Array.from({ length: 9 }, (_, n) => ({ name: `z${n}`, content: zeros(6), deflate: true }))]),
    problem: ['file', 'inflates to more than 50 MiB'],
  },
  {
    what: 'a bomb of many files that lie about their sizes',
    zip: () =>
      rawZip([
        main,
        ...Array.from({ length: 9 }, (_, n) => ({ name: `z${n}`, content: zeros(9), deflate: true, size: 9 })),
      ]),
    problem: ['z8', 'inflates to more than the 9 bytes'],
  },
  {
    what: 'entries over the same bytes',
    zip: () =>
      rawZip([
        main,
        { name: 'big', content: zeros(1), deflate: true },
        ...Array.from({ length: 40 }, () => ({ name: 'big', over: 1, content: zeros(1), deflate: true })),
      ]),
    problem: ['big', 'overlaps the bytes of another entry'],
  },
  {
    what: 'more than 2000 entries',
    zip: () => rawZip([main, ...Array.from({ length: 2000 }, (_, n) => ({ name: `f${n}` }))]),
    problem: ['file', 'has more than 2000 entries'],
  },
];

const broken: readonly HostilePackage[] = [
  { what: 'nothing that is a zip', zip: () => Buffer.from('#!/bin/sh\nid\n'), problem: ['file', 'is not a zip'] },
  { what: 'one byte', zip: () => Buffer.from('P'), problem: ['file', 'is not a zip'] },
  {
    what: 'a zip behind a script',
    zip: () => rawZip([main], { prefix: Buffer.from('#!/bin/sh\n') }),
    problem: ['file', 'is not a zip'],
  },
  { what: 'half a zip', zip: () => rawZip([main]).subarray(0, 40), problem: ['file', 'readable zip file'] },
  {
    what: 'bytes behind the zip',
    zip: () => rawZip([main], { suffix: Buffer.from('more') }),
    problem: ['file', 'readable zip file'],
  },
  {
    what: 'a directory elsewhere',
    zip: () => rawZip([main], { directoryShift: -3 }),
    problem: ['file', 'readable zip file'],
  },
  {
    what: 'a directory beyond the end',
    zip: () => rawZip([main], { directoryShift: 1e6 }),
    problem: ['file', 'readable zip file'],
  },
  {
    what: 'more entries than there are',
    zip: () => rawZip([main], { entryCount: 50 }),
    problem: ['file', 'readable zip file'],
  },
  { what: 'several disks', zip: () => rawZip([main], { diskNumber: 3 }), problem: ['file', 'readable zip file'] },
  { what: 'no entries', zip: () => rawZip([]), problem: ['file', 'is not a zip'] },
];

const modules: readonly HostilePackage[] = [
  { what: 'no module', zip: () => rawZip([{ name: 'README.md', content: 'x' }]), problem: ['file', 'has no .tf file'] },
  {
    what: 'a module in what is dropped',
    zip: () => rawZip([{ name: '.terraform/main.tf', content: 'x' }]),
    problem: ['file', 'has no .tf file'],
  },
  one('an override file', { name: 'override.tf', content: 'x = 1' }, 'is an override file'),
  one('an override file that comes last', { name: '~zz_override.tf', content: 'x = 1' }, 'is an override file'),
  one('an override file in JSON', { name: 'a_override.tf.json', content: '{}' }, 'is an override file'),
  one("an override file of OpenTofu's", { name: 'b_override.tofu', content: 'x = 1' }, 'is an override file'),
  one('a file in the place of an access key', { name: '.platform/id', content: 'x' }, 'is reserved for the platform'),
  one('a file in that place by another case', { name: '.Platform/id', content: 'x' }, 'is reserved for the platform'),
  one('a file of HCL that is too large', { name: 'a.tf', content: '#'.repeat(300_000) }, 'is larger than 256 KiB'),
  {
    what: 'too much HCL in all',
    zip: () => packOf(Object.fromEntries(Array.from({ length: 9 }, (_, n) => [`f${n}.tf`, '#'.repeat(250_000)]))),
    problem: ['file', 'more than 2 MiB of Terraform'],
  },
  hcl('HCL that does not end', 'variable "x" {', 'line 1, column'),
  hcl('HCL that is nested too deeply', `a = ${'['.repeat(20_000)}`, 'nested too deeply'),
  hcl(
    'a default that is nested too deeply',
    `variable "x" {\n  default = ${'['.repeat(2000)}${']'.repeat(2000)}\n}\n`,
    'is not valid Terraform: variable.x.0.default',
  ),
  one('HCL that is not UTF-8', { name: 'b.tf', content: Buffer.from([0x23, 0xff]) }, 'is not UTF-8'),
  hcl('a variable twice', 'variable "x" {\n}\nvariable "x" {\n}\n', 'a second time'),
  hcl('a variable whose name is a path', 'variable "../x" {\n}\n', 'an invalid or reserved name'),
  hcl('a default with NUL', 'variable "x" {\n  default = "\\u0000"\n}\n', 'NUL', 'inputs'),
  {
    what: 'defaults that are huge together',
    zip: () =>
      packOf(
        Object.fromEntries(
          ['a', 'b'].map((n) => [
            `${n}.tf`,
            `variable "${n}" {
  default = "${'y'.repeat(200_000)}"
}
`,
          ]),
        ),
      ),
    problem: ['inputs', 'are too long'],
  },
  one("Terraform's JSON that is none", { name: 'b.tf.json', content: '{' }, 'cannot be parsed'),
  one("Terraform's JSON of other types", { name: 'b.tf.json', content: '{"variable": [5]}' }, 'not valid Terraform'),
];

const manifests: readonly HostilePackage[] = [
  manifest('YAML that expands without end', bomb(), 'manifest.yaml', 'cannot be parsed'),
  manifest('YAML that is nested too deeply', '['.repeat(30_000), 'manifest.yaml', 'cannot be parsed'),
  manifest(
    'a default that is nested too deeply in YAML',
    `inputs: [{name: x, default: ${'['.repeat(300)}${']'.repeat(300)}}]`,
    'inputs.0.default',
    'at most 64 nested levels',
  ),
  manifest('YAML that is too large', `title: ${'x'.repeat(70_000)}`, 'manifest.yaml', 'is larger than 64 KiB'),
  manifest('YAML of tags', 'title: !!js/function "x"\nname: [', 'manifest.yaml', 'cannot be parsed'),
  manifest('a list', '- 1', 'manifest', 'must be an object'),
  manifest('a name that is a path', 'name: ../../x', 'name', 'lower-case letters'),
  manifest('a title with a line break', 'title: "a\\nb"', 'title', 'one line'),
  manifest('an icon that is a script', 'icon: "javascript:alert(1)"', 'icon', 'must be one emoji'),
  manifest('an icon over http', 'icon: http://example.org/i.png', 'icon', 'must be one emoji'),
  manifest('an icon that is SVG', 'icon: "data:image/svg+xml;base64,AAAA"', 'icon', 'must be one emoji'),
  manifest('an icon that ends its attribute', `icon: 'https://a/"><script>'`, 'icon', 'must be one emoji'),
  manifest('an icon with a password', 'icon: https://u:p@example.org/i.png', 'icon', 'must be one emoji'),
  manifest(
    'an input that the platform fills in',
    'inputs: [{name: ssh_private_key}]',
    'inputs.ssh_private_key',
    'sets itself',
  ),
  manifest('an input twice', 'inputs: [{name: a}, {name: a}]', 'inputs.a', 'is listed twice'),
  manifest(
    'an input whose default is of another type',
    'inputs: [{name: a, type: number, default: "five"}]',
    'inputs.a',
    'other than number',
  ),
  manifest('an input whose name is an option', 'inputs: [{name: "-destroy"}]', 'inputs.0.name', 'must be a name'),
  manifest('an input of an unknown type', 'inputs: [{name: a, type: shell}]', 'inputs.0.type', 'must be one of'),
  manifest(
    'a web port on a host of its own',
    'web: {port: 80, host: 169.254.169.254}',
    'web.host',
    'is not a known field',
  ),
  manifest('a web port on an address', 'web: {port: 80, node: "http://x"}', 'web.node', 'name of a node'),
  manifest('a web port beyond ports', 'web_port: 70000', 'web_port', 'must be at most 65535'),
  { what: 'JSON that is none', zip: () => packOf({ 'stack.json': '{' }), problem: ['stack.json', 'cannot be parsed'] },
];

/** Nine levels of nine references each. */
function bomb(): string {
  const levels = Array.from({ length: 9 }, (_, n) => {
    const items = n === 0 ? '"x","x","x"' : Array.from({ length: 9 }, () => `*a${n - 1}`).join(',');
    return `a${n}: &a${n} [${items}]`;
  });
  return `${levels.join('\n')}\ntitle: *a8\n`;
}

export const hostilePackages: readonly HostilePackage[] = [
  ...names,
  ...kinds,
  ...sizes,
  ...broken,
  ...modules,
  ...manifests,
];
