import { describe, expect, it } from 'vitest';
import { readPackage } from '#core/stacks/package/package.ts';
import { packOf } from '#test/stacks/raw-zip.ts';

async function providersOf(files: Readonly<Record<string, string>>): Promise<string[]> {
  const { metadata } = await readPackage(packOf(files), null, null);
  return (metadata.providers ?? []).map(({ source, version }) => `${source} ${version ?? '-'}`);
}

describe('the providers of a module', () => {
  it('are empty when it uses only built-in parts of Terraform', async () => {
    expect(await providersOf({ 'main.tf': 'resource "terraform_data" "a" {}\n' })).toEqual([]);
  });

  it('include those that any file declares and those that its resources imply', async () => {
    const files = {
      'versions.tf': `
terraform {
  required_providers {
    tiny   = { source = "Example/Tiny", version = "~> 1.2" }
    mine   = { source = "registry.example.com/team/mine" }
    random = ">= 3.0"
  }
}
terraform {
  required_providers {
    unused = { source = "example/unused" }
  }
}`,
      'main.tf': `
provider "aws" {
  region = "eu-central-1"
}
resource "tiny_note" "a" { text = "x" }
resource "random_id" "b" { byte_length = 2 }
resource "google_thing" "c" { provider = google-beta.west }
data "http" "d" { url = "https://example.com" }
resource "terraform_data" "e" {}
`,
    };
    expect(await providersOf(files)).toEqual([
      'example/tiny ~> 1.2',
      'example/unused -',
      'hashicorp/aws -',
      'hashicorp/google-beta -',
      'hashicorp/http -',
      'hashicorp/random >= 3.0',
      'registry.example.com/team/mine -',
    ]);
  });

  it('include those of package modules that it calls, directly and indirectly', async () => {
    const needs = (name: string, version: string): string =>
      `terraform {\n required_providers {\n  ${name} = { source = "example/${name}", version = "${version}" }\n }\n}\n`;
    const call = (source: string): string => `module "m" {\n source = "${source}"\n}\n`;
    const files = {
      'main.tf': needs('tiny', '>= 1.0') + call('./modules/one/') + 'module "n" {\n source = "./beside"\n}\n',
      'modules/one/main.tf': needs('tiny', '< 2.0') + call('../../modules/two'),
      'modules/two/main.tf': call('../one') + 'resource "random_id" "b" { byte_length = 2 }\n',
      'beside/x.tf': needs('other', '~> 3.0') + call('../../outside'),
      'modules/uncalled/main.tf': needs('unused', '1.0'),
      'far.tf': 'module "far" {\n source = "hashicorp/consul/aws"\n}\nmodule "gone" {\n source = "./gone"\n}\n',
    };
    expect(await providersOf(files)).toEqual([
      'example/other ~> 3.0',
      'example/tiny >= 1.0, < 2.0',
      'hashicorp/random -',
    ]);
  });

  it('are read from package modules that have other errors', async () => {
    const files = {
      'top/main.tf': 'module "m" {\n source = "./m"\n}\n',
      'top/m/main.tf': 'resource "x_y" {',
      'top/m/b.tf': 'resource "random_id" "b" {}\n',
    };
    expect(await providersOf(files)).toEqual(['hashicorp/random -']);
  });

  it('are read from JSON, without invalid names', async () => {
    const main = {
      terraform: {
        required_providers: { tiny: { source: 'example/tiny', version: '1.0' }, 'a b': { source: '../../x' } },
      },
      resource: { other_thing: { a: {} } },
    };
    const found = await providersOf({ 'main.tf': '', 'more.tf.json': JSON.stringify(main) });
    expect(found).toEqual(['example/tiny 1.0', 'hashicorp/other -']);
  });
});
