import { describe, expect, it } from 'vitest';
import { readPackage } from '#core/stacks/package/package.ts';
import { packOf } from './raw-zip.ts';

async function providersOf(files: Readonly<Record<string, string>>): Promise<string[]> {
  const { metadata } = await readPackage(packOf(files), null, () => null);
  return (metadata.providers ?? []).map(({ source, version }) => `${source} ${version ?? '-'}`);
}

describe('the providers of a module', () => {
  it('are none where it has only what is part of Terraform', async () => {
    expect(await providersOf({ 'main.tf': 'resource "terraform_data" "a" {}\n' })).toEqual([]);
  });

  it('are those that it declares, in any file, and those that its resources imply', async () => {
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

  it('are read from JSON, and nothing that is no name of one is taken', async () => {
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
