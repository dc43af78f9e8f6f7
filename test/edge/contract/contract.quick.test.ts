import { globSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { mailedTypes } from '#core/alerts/alerts.ts';
import { organizationSchema } from '#edge/contract/organizations.ts';

const files = globSync('src/edge/contract/*.ts');

describe('the contract', () => {
  it('imports zod, types of base and its own files, so that a command loads little', () => {
    const imports = files.flatMap((path) => readFileSync(path, 'utf8').match(/^import .* from '.*';$/gm) ?? []);
    expect(imports.length).toBeGreaterThan(files.length);
    const others = imports.filter(
      (line) => !/ from '(?:zod|\.\/[\w-]+\.ts)';$|^import type .* from '#base\//.test(line),
    );
    expect(others).toEqual([]);
  });

  it('names the alerts that core mails by default', () => {
    expect(organizationSchema.shape.alert_emails.meta()?.description).toContain(`: ${mailedTypes.join(', ')}`);
  });
});
