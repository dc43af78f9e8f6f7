import { execFile } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { expect, it } from 'vitest';
import { endpoints } from '#edge/inference/request/endpoints.ts';
import { nestedFields } from '#edge/inference/request/vllm-fields.ts';

/** The Python that this vLLM runs in: of its virtual environment, or what its own first line names. */
function pythonOf(program: string): string {
  const beside = [join(dirname(program), 'venv/bin/python'), join(dirname(program), 'python')].find(existsSync);
  return beside ?? /^#!(\S+)/.exec(readFileSync(program, 'utf8'))?.[1] ?? 'python3';
}

/** Conversations and what is compared have the same parts, alone or in lists. */
function placeOf(place: string): string {
  return place.replace(
    /^(?:messages|input|query|queries|documents|items|data_[12]|text_[12])(?:\[\])*(?=\.|$)/,
    'messages[]',
  );
}

/** Each field with its place. */
function flat(table: Readonly<Record<string, readonly string[]>>): string[] {
  const all = Object.entries(table).flatMap(([place, fields]) => fields.map((field) => `${placeOf(place)} ${field}`));
  return [...new Set(all)].toSorted();
}

it('lists exactly the request fields of the installed vLLM', async () => {
  const script = new URL('request-fields.py', import.meta.url).pathname;
  const { stdout } = await promisify(execFile)(pythonOf(process.env['VLLM_BIN'] ?? ''), [script]);
  const found = flat(JSON.parse(stdout.trim().split('\n').at(-1) ?? '') as Record<string, string[]>);
  expect(found.length).toBeGreaterThan(200);
  const tables: [string, object][] = [
    ...endpoints.map(({ path, fields }): [string, object] => [path, fields]),
    ...Object.entries(nestedFields),
  ];
  const decided = flat(Object.fromEntries(tables.map(([place, fields]) => [place, Object.keys(fields)])));
  const missing = found.filter((field) => !decided.includes(field));
  expect(missing, 'fields that src/edge/inference/request/vllm-fields.ts has to decide').toEqual([]);
  expect(
    decided.filter((field) => !found.includes(field)),
    'fields that this vLLM has no more',
  ).toEqual([]);
});
