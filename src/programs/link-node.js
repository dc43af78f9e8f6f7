import { existsSync, rmSync, symlinkSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

// Run by npm at the end of an installation. The Node that comes with the packages is one package for each platform, all
// with a program "node": npm 10 removes the packages of other platforms, and with them the link to this one's program.

const packages = fileURLToPath(new URL('../../node_modules/', import.meta.url));
const link = `${packages}.bin/node`;
const names = [`node-${process.platform}-${process.arch}`, `node-bin-${process.platform}-${process.arch}`];
const name = names.find((candidate) => existsSync(`${packages}${candidate}/bin/node`));

if (name !== undefined && !existsSync(link)) symlinkSync(`../${name}/bin/node`, link);

// And the command of this very package, which npm does not link: npx would keep a link of its own elsewhere, for ever,
// also to where the command was in an earlier version.
const command = `${packages}.bin/headgate`;
if (existsSync(`${packages}.bin`) && !existsSync(command)) {
  rmSync(command, { force: true });
  symlinkSync('../../src/programs/headgate.js', command);
}
