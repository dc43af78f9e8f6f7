import type { z } from 'zod';

/** A part of the configuration: its variables, and the value that rooms get from them. */
export interface Section<Shape extends z.ZodRawShape, Value> {
  readonly variables: Shape;
  /** @param values may include values of other sections */
  readonly from: (values: z.output<z.ZodObject<Shape>>) => Value;
}

export function section<Shape extends z.ZodRawShape, Value>(
  variables: Shape,
  from: Section<Shape, Value>['from'],
): Section<Shape, Value> {
  return { variables, from };
}

export const secondsMs = (seconds: number): number => seconds * 1000;
