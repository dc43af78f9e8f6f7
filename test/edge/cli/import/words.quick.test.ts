import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { splitWords } from '#base/shell-words.ts';
import { parseDockerRun } from '#core/catalog/files/docker-run.ts';
import { perMillion } from '#edge/cli/import/decimal.ts';
import { createNames, fileNameOf, keyVariable } from '#edge/cli/import/draft.ts';
import { optionValue } from '#edge/cli/import/program-words.ts';
import { parseLength } from '#core/catalog/files/vllm-flag-checks.ts';

describe('a price per token', () => {
  it.each([[''], ['.'], ['-1'], ['free'], ['0x1'], ['1e'], ['1e999'], ['1,5']])('is rejected: %s', (text) => {
    expect(perMillion(text)).toBeNull();
  });

  it.each([
    ['0.00000015', '0.15', true],
    ['1.5e-07', '0.15', true],
    ['6E-7', '0.6', true],
    ['7.5e-8', '0.075', true],
    ['0', '0', true],
    ['2', '2000000', true],
    ['1e-12', '0.000001', true],
    ['1e-13', '0.000001', false],
    ['0.0000001234567', '0.123457', false],
  ])('%s is %s USD per million', (text, value, exact) => {
    expect(perMillion(text)).toEqual({ value, exact });
  });

  it('is exact for every number of micro-dollars per million, in any notation', () => {
    fc.assert(
      fc.property(fc.bigInt({ min: 0n, max: 10n ** 15n }), fc.nat(20), (micro, shift) => {
        const text = `${micro}${'0'.repeat(shift)}e-${12 + shift}`;
        const [whole = '', fraction = ''] = (perMillion(text)?.value ?? '').split('.');
        expect(BigInt(whole + fraction.padEnd(6, '0'))).toBe(micro);
      }),
    );
  });
});

describe('splitting a command into words', () => {
  it.each([["a 'b"], ['a "b'], ['"a\\"']])('returns null for an open quote: %s', (text) => {
    expect(splitWords(text)).toBeNull();
  });

  it.each([
    ['', []],
    ['  a\tb\nc ', ['a', 'b', 'c']],
    ['a \\\n b', ['a', 'b']],
    [`--gpus '"device=0,1"'`, ['--gpus', '"device=0,1"']],
    ['"a b"c\'d e\'', ['a bcd e']],
    ['"\\"x\\" \\n"', ['"x" \\n']],
    ["a '' b", ['a', '', 'b']],
    ['a\\ b', ['a b']],
  ])('splits %j into %j', (text, words) => {
    expect(splitWords(text)).toEqual(words);
  });

  it('returns single-quoted words unchanged', () => {
    fc.assert(
      fc.property(fc.array(fc.string()), (words) => {
        const quoted = words.map((word) => `'${word.replaceAll("'", `'\\''`)}'`).join(' ');
        expect(splitWords(quoted)).toEqual(words);
      }),
    );
  });
});

describe('parsing docker run', () => {
  const parse = (text: string) => parseDockerRun(splitWords(text) ?? []);

  it('returns null when only options are present', () => {
    expect(parse('--rm -it')).toBeNull();
    expect(parse('--name')).toBeNull();
  });

  it('separates options, their values, image and arguments', () => {
    const run = parse(
      '-it --rm --gpus=all -e A=1 -eB=2 --env C=3 -p8000:80 -v /a:/b:ro --init image:v1 --env not-ours -e x',
    );
    expect(run?.image).toBe('image:v1');
    expect(run?.args).toEqual(['--env', 'not-ours', '-e', 'x']);
    expect(Object.fromEntries(run?.options ?? [])).toEqual({
      interactive: ['true'],
      tty: ['true'],
      rm: ['true'],
      gpus: ['all'],
      env: ['A=1', 'B=2', 'C=3'],
      publish: ['8000:80'],
      volume: ['/a:/b:ro'],
      init: ['true'],
    });
  });
});

describe('names of imported engines', () => {
  it('are unique in any case, and valid as ids of files', () => {
    const names = createNames();
    expect(names.takeId('My Model!')).toBe('My-Model-');
    expect(names.takeId('my-model-')).toBe('my-model--2');
    expect(names.takeId('//')).toBe('model');
    expect(names.takeName('a', ['Shown'])).toBe('Shown');
    expect(names.takeName('b', ['shown', 'other'])).toBe('other');
    expect(names.takeName('a', ['shown'])).toBe('shown');
    expect(fileNameOf('Org/Model:q4')).toBe('org-model-q4.yaml');
    expect(keyVariable('7b/chat-model')).toBe('MODEL_7B_CHAT_MODEL_API_KEY');
  });

  it.each([
    ['32768', 32_768],
    ['32k', 32_000],
    ['32K', 32_768],
    ['1.5k', 1500],
    ['0', null],
    ['auto', null],
    [null, null],
  ])("follow vLLM's format for context lengths: %s", (text, length) => {
    expect(parseLength(text)).toBe(length);
  });
});

describe('an option that a command repeats', () => {
  it('has its last value, in any of its forms', () => {
    expect(optionValue(['-tp', '1', '--tensor_parallel_size=4'], '--tensor-parallel-size', '-tp')).toBe('4');
  });
});
