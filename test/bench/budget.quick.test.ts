import { describe, expect, it } from 'vitest';
import { formatFigure, isWithin, noiseOf } from './budget.ts';

const budget = { 'json.gateway.cpu': 3 };
const figure = (value: number, noise = 0) => ({ id: 'json.gateway.cpu', value, noise });

describe('a budget', () => {
  it.each([
    [2.9, 0, true],
    [3, 0, true],
    [3.01, 0, false],
    [3.4, 0.5, true],
    [3.4, 0.3, false],
    [Number.NaN, 0, false],
    [Number.NaN, Number.NaN, false],
  ])('of 3 with a figure of %d and noise of %d is kept: %s', (value, noise, isKept) => {
    expect(isWithin(figure(value, noise), budget)).toBe(isKept);
  });

  it('is exceeded by a figure that has none', () => {
    expect(isWithin({ id: 'new', value: 0, noise: 0 }, budget)).toBe(false);
    expect(formatFigure({ id: 'new', value: 0, noise: 0 }, budget)).toMatch(/^OVER .*no budget$/);
  });

  it('is printed beside the figure', () => {
    expect(formatFigure(figure(3.456, 0.1), budget)).toMatch(/^OVER +json\.gateway\.cpu +3\.46 ± 0\.10 +budget 3\.00$/);
  });
});

describe('noise', () => {
  it('is 0 for equal rounds, and not moved by one outlier', () => {
    expect(noiseOf([2, 2, 2, 2])).toBe(0);
    expect(noiseOf([2, 2, 2, 2, 90])).toBe(0);
  });

  it('falls with the number of rounds', () => {
    const rounds = [1.8, 2, 2.2];
    expect(noiseOf([...rounds, ...rounds, ...rounds, ...rounds])).toBeCloseTo(noiseOf(rounds) / 2);
  });
});
