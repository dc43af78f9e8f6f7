import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const meta = new URL('../../drizzle/meta/', import.meta.url);

interface Journal {
  readonly entries: readonly { readonly tag: string }[];
}

/** Each is a copy of the whole schema, and `drizzle-kit generate` reads only the newest: delete the one before it. */
it("keeps only the newest migration's snapshot", () => {
  const { entries }: Journal = JSON.parse(readFileSync(new URL('_journal.json', meta), 'utf8'));
  const newest = entries.at(-1)?.tag.split('_')[0];
  const snapshots = readdirSync(meta).filter((name) => name.endsWith('_snapshot.json'));
  expect(snapshots).toEqual([`${newest}_snapshot.json`]);
});
