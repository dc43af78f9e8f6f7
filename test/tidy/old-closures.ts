import { parseSync, Visitor } from 'oxc-parser';
import type { SourceFile } from './rooms.ts';

/**
 * Function literals that are assigned to a property: `call.onStop = () => …`. V8 takes such a function for a method of
 * something that lasts and makes it in the old part of the heap (`CheckAssigningFunctionLiteralToProperty` of its
 * parser). On the path of a request that is a leak until the next full collection: from there the function keeps
 * everything that it knows alive, its request with all bodies, and each minor collection copies that instead of
 * dropping it. A function that has a name first is made like any other object.
 * @returns one sentence for each, beginning with the file and the line
 */
export function findOldClosures(files: readonly SourceFile[]): string[] {
  if (files.length === 0) return ['no files were checked'];
  return files.flatMap(({ path, text }) => {
    const found: string[] = [];
    const visitor = new Visitor({
      AssignmentExpression({ left, right, start }) {
        const isFunction = right.type === 'ArrowFunctionExpression' || right.type === 'FunctionExpression';
        if (!isFunction || left.type !== 'MemberExpression') return;
        const line = text.slice(0, start).split('\n').length;
        found.push(`${path}:${line}: give the function a name before it is assigned to a property`);
      },
    });
    visitor.visit(parseSync(path, text).program);
    return found;
  });
}
