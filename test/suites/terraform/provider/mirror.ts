import { execFileSync } from 'node:child_process';
import { chmodSync, copyFileSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { stripTypeScriptTypes } from 'node:module';
import { arch } from 'node:process';
import { join } from 'node:path';
import { packZip } from '#base/zip.ts';

const platform = `linux_${arch === 'x64' ? 'amd64' : arch}`;
export const host = 'registry.terraform.io';

/** A folder of provider packages, with `example/tiny`, or the same of other namespaces, in versions that a test wants. */
export class Mirror {
  readonly folder = mkdtempSync('/var/tmp/hg-mirror-');
  readonly #program: string;

  constructor() {
    // A run has a user of its own where the gateway is root.
    chmodSync(this.folder, 0o755);
    const work = mkdtempSync('/var/tmp/hg-certificate-');
    const [key, cert] = [join(work, 'key'), join(work, 'cert')];
    const curve = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-days', '2'];
    const name = ['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost'];
    execFileSync('openssl', ['req', '-x509', ...curve, '-keyout', key, '-out', cert, ...name], { stdio: 'ignore' });
    const tls = { key: readFileSync(key, 'utf8'), cert: readFileSync(cert, 'utf8') };
    rmSync(work, { recursive: true });
    // The mirror that a run sees is in /mirror: Node, too, wherever the machine has it.
    copyFileSync(process.execPath, join(this.folder, 'node'));
    chmodSync(join(this.folder, 'node'), 0o755);
    const source = stripTypeScriptTypes(readFileSync(new URL('serve.ts', import.meta.url), 'utf8'));
    writeFileSync(join(this.folder, 'serve.mjs'), `${source}\nserve(${JSON.stringify(tls)});\n`);
    // Terraform that is started by hand has no /mirror.
    this.#program = `#!/bin/sh\nm=/mirror; [ -d $m ] || m=${this.folder}\nexec $m/node $m/serve.mjs\n`;
  }

  /** As `terraform providers mirror` fills it. */
  async packed(version: string, { comment = '', namespace = 'example' } = {}): Promise<void> {
    const bytes = Buffer.from(this.#program + comment);
    const path = `terraform-provider-tiny_v${version}`;
    const zip = await packZip([{ path, bytes, isExecutable: true }], { compress: true });
    const folder = this.#folderOf(namespace);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `terraform-provider-tiny_${version}_${platform}.zip`), zip);
  }

  unpacked(version: string, { namespace = 'example' } = {}): void {
    const folder = join(this.#folderOf(namespace), version, platform);
    mkdirSync(folder, { recursive: true });
    writeFileSync(join(folder, `terraform-provider-tiny_v${version}`), this.#program, { mode: 0o755 });
  }

  /** Changes notes outside of Terraform: by their text, the text that they have now, or null for deleted ones. */
  outside(notes: Readonly<Record<string, string | null>>): void {
    writeFileSync(join(this.folder, 'outside.json'), JSON.stringify(notes));
  }

  /** Lets Terraform wait when it reads notes, until `release`. */
  hold(): void {
    writeFileSync(join(this.folder, 'hold'), '');
  }

  release(): void {
    rmSync(join(this.folder, 'hold'), { force: true });
  }

  #folderOf(namespace: string): string {
    return join(this.folder, host, namespace, 'tiny');
  }

  close(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
