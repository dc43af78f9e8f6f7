import { existsSync, rmSync, symlinkSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

// Restores links after an installation by npm. The packaged Node is one package for each platform, all with a program
// "node": npm 10 removes the packages of other platforms, and with them the link to the program of this platform.

const packages = fileURLToPath(new URL('../../node_modules/', import.meta.url));
const link = `${packages}.bin/node`;
const names = [`node-${process.platform}-${process.arch}`, `node-bin-${process.platform}-${process.arch}`];
const name = names.find((candidate) => existsSync(`${packages}${candidate}/bin/node`));

if (name !== undefined && !existsSync(link)) symlinkSync(`../${name}/bin/node`, link);

// Links the command of this package itself, which npm does not link. Without this link, npx would permanently keep a
// link elsewhere, even to the place of the command in an earlier version.
const command = `${packages}.bin/headgate`;
if (existsSync(`${packages}.bin`) && !existsSync(command)) {
  rmSync(command, { force: true });
  symlinkSync('../../src/programs/headgate.js', command);
}
