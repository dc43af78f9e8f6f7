import { describe, expect, it } from 'vitest';
import {
  PackageRefusedError,
  type ReadPackage,
  readPackage,
  type TerraformProgram,
} from '#core/stacks/package/package.ts';
import { rawZip } from '#test/stacks/raw-zip.ts';

type Files = Readonly<Record<string, string>>;

const openTofu: TerraformProgram = { product: 'OpenTofu', version: '1.11.2' };
const terraform: TerraformProgram = { product: 'Terraform', version: '1.11.4' };
const variable = (name: string, body = ''): string => `variable "${name}" {\n${body}\n}\n`;

const read = (files: Files, program: TerraformProgram | null = null): Promise<ReadPackage> =>
  readPackage(rawZip(Object.entries(files).map(([name, content]) => ({ name, content }))), null, program);

async function problemsOf(files: Files, program: TerraformProgram | null = null): Promise<string[]> {
  const error: unknown = await read(files, program).catch((thrown: unknown) => thrown);
  if (!(error instanceof PackageRefusedError)) throw new Error('the package was accepted');
  return error.problems.map(({ field, message }) => `${field}: ${message}`);
}

const namesOf = ({ metadata }: ReadPackage): string[] => metadata.inputs.map(({ name }) => name);

describe('a zip file from Windows', () => {
  const zip = (name: string, madeBy: number): Buffer => rawZip([{ name, content: variable('a'), madeBy, mode: 0 }]);

  it.each([0x0014, 0x0a14])('reads "\\" as "/" when it is made by %i', async (madeBy) => {
    const { metadata } = await readPackage(zip('win\\main.tf', madeBy), null, null);
    expect(metadata.root).toBe('win');
  });

  it.each(['..\\main.tf', 'C:\\main.tf', '\\main.tf'])('is rejected when %s leads out of it', async (name) => {
    await expect(readPackage(zip(name, 0x0014), null, null)).rejects.toThrow(PackageRefusedError);
  });

  it('keeps the rule for "\\" of other systems', async () => {
    await expect(readPackage(zip('win\\main.tf', 0x0314), null, null)).rejects.toThrow(PackageRefusedError);
  });
});

describe('files of OpenTofu', () => {
  const both = { 'main.tf': variable('of_tf'), 'main.tofu': variable('of_tofu'), 'other.tf': variable('other') };

  it('replace files of the same name when OpenTofu applies stacks', async () => {
    expect(namesOf(await read(both, openTofu)).toSorted()).toEqual(['of_tofu', 'other']);
  });

  it('are ignored when Terraform applies stacks', async () => {
    expect(namesOf(await read(both, terraform)).toSorted()).toEqual(['of_tf', 'other']);
  });

  it('are enough when OpenTofu applies stacks, or the program is unknown', async () => {
    for (const program of [openTofu, null]) {
      expect(namesOf(await read({ 'main.tofu': variable('a') }, program))).toEqual(['a']);
    }
    expect(await problemsOf({ 'main.tofu': variable('a') }, terraform)).toEqual([
      'file: has only .tofu files, which require OpenTofu, but this installation uses Terraform',
    ]);
  });

  it('are not required: a module of JSON only is accepted', async () => {
    const json = JSON.stringify({ variable: { a: { default: 'echo $${HOME}' } } });
    const { metadata } = await read({ 'main.tf.json': json }, terraform);
    expect(metadata.inputs).toMatchObject([{ name: 'a', default: 'echo $${HOME}' }]);
  });
});

describe('a manifest', () => {
  const withManifest = (text: string, name = 'manifest.yaml'): Files => ({ 'main.tf': variable('a'), [name]: text });

  it.each(['', '# comments only\n', 'inputs:\n', 'name:\ntitle:\nweb:\n  port:\n', 'inputs: [{name: a, type: }]'])(
    'sets nothing without values: %j',
    async (text) => {
      const found = await read(withManifest(text));
      expect(found.stated).toEqual({ name: null, title: null, description: null, category: null, icon: null });
      expect(namesOf(found)).toEqual(['a']);
    },
  );

  it('can name an input without other fields', async () => {
    expect(namesOf(await read(withManifest('inputs:\n  b:\n  a:\n')))).toEqual(['b', 'a']);
  });

  it.each(['files/stack.yml', 'web/manifest.yaml', 'web/stack.json'])(
    'is not read from %s below the module',
    async (path) => {
      const { stated } = await read({ 'main.tf': '', [path]: '{"name": "My_Stack"}' });
      expect(stated.name).toBeNull();
    },
  );

  it.each(['manifest.yaml', 'top/manifest.yml', 'top/tf/stack.yaml', 'top/tf/web/manifest.json'])(
    'is read from %s of a module in top/tf',
    async (path) => {
      const { stated } = await read({ 'top/tf/main.tf': '', [path]: '{"name": "queue"}' });
      expect(stated.name).toBe('queue');
    },
  );

  it('is the shallowest of several', async () => {
    const { stated } = await read({
      'main.tf': '',
      'web/manifest.json': '{"name": "My app"}',
      'manifest.json': '{"name": "queue"}',
    });
    expect(stated.name).toBe('queue');
  });

  it('is named in each of its problems', async () => {
    const problems = await problemsOf(withManifest('{"name": "My app", "inputs": [{}]}', 'web/manifest.json'));
    expect(problems).toHaveLength(2);
    for (const problem of problems) expect(problem).toContain('(in web/manifest.json)');
  });
});

describe('a default of the module', () => {
  it.each([
    ['"echo $${HOME}"', 'echo ${HOME}'],
    ['"100%%{h}"', '100%{h}'],
    ['"plain $HOME %h $$ %%"', 'plain $HOME %h $$ %%'],
    ['["$${A}", { "$${B}" = "%%{C}" }]', ['${A}', { '${B}': '%{C}' }]],
    ['<<-EOT\n  $${A}\n  EOT\n', '${A}\n'],
    ['60 * 60', '${60 * 60}'],
  ])('%s is shown without escapes, and evaluated by Terraform', async (text, shown) => {
    const { metadata } = await read({ 'main.tf': variable('a', `default = ${text}`) });
    expect(metadata.inputs).toMatchObject([{ default: shown, isModuleDefault: true, required: false }]);
  });

  it('is replaced by the default of the manifest, which runs pass on', async () => {
    const { metadata } = await read({
      'main.tf': variable('a', 'default = "x"'),
      'manifest.yaml': 'inputs: [{name: a, default: y}]',
    });
    expect(metadata.inputs[0]).toMatchObject({ default: 'y' });
    expect(metadata.inputs[0]).not.toHaveProperty('isModuleDefault');
  });
});

it('treats ephemeral variables as sensitive, and lists them', async () => {
  const { metadata } = await read({ 'main.tf': variable('token', 'ephemeral = true') });
  expect(metadata).toMatchObject({ ephemeral: ['token'], inputs: [{ name: 'token', sensitive: true }] });
});
