import { isMap, isNode, isScalar, LineCounter, parseDocument, type Document } from 'yaml';

/** A parsed YAML text that still knows on which line each of its fields stands. */
export interface YamlSource {
  readonly value: unknown;
  /** Line (from 1) of the field at a path, or of the nearest thing around it that is there. */
  lineOf(path: readonly PropertyKey[]): number;
}

export type YamlResult =
  | { readonly ok: true; readonly source: YamlSource }
  | { readonly ok: false; readonly problems: readonly { readonly line: number; readonly message: string }[] };

/**
 * Reads one YAML 1.2 document.
 * @param decimalPaths fields whose numbers are kept as the text that the file has, since a parsed one may be rounded
 */
export function readYaml(text: string, decimalPaths: readonly (readonly string[])[]): YamlResult {
  const lineCounter = new LineCounter();
  const document = parseDocument(text, { lineCounter, version: '1.2', uniqueKeys: true, prettyErrors: false });
  if (document.errors.length > 0) {
    const problems = document.errors.map((error) => ({
      line: lineCounter.linePos(error.pos[0]).line,
      message: `not valid YAML: ${error.message}`,
    }));
    return { ok: false, problems };
  }
  for (const path of decimalPaths) keepDecimalText(document, path);
  try {
    const source: YamlSource = {
      value: document.toJS() as unknown,
      lineOf: (path) => lineCounter.linePos(offsetOf(document, path)).line,
    };
    return { ok: true, source };
  } catch (error) {
    // Aliases are resolved only here: too many of them, or one without its anchor.
    const message = error instanceof Error ? error.message : String(error);
    return { ok: false, problems: [{ line: 1, message: `not valid YAML: ${message}` }] };
  }
}

function keepDecimalText(document: Document, path: readonly string[]): void {
  const node = nodeAt(document, path);
  if (isScalar(node) && typeof node.value === 'number' && node.source !== undefined) node.value = node.source;
}

function nodeAt(document: Document, path: readonly PropertyKey[]): unknown {
  return path.length === 0 ? document.contents : document.getIn(path, true);
}

/** Offset of the key of a map's field, of the item of a list, or of what is around them. */
function offsetOf(document: Document, path: readonly PropertyKey[]): number {
  if (path.length === 0) return isNode(document.contents) ? (document.contents.range?.[0] ?? 0) : 0;
  const parentPath = path.slice(0, -1);
  const last = path[path.length - 1];
  const parent = nodeAt(document, parentPath);
  if (isMap(parent)) {
    const pair = parent.items.find((item) => isScalar(item.key) && String(item.key.value) === String(last));
    if (pair !== undefined && isScalar(pair.key) && pair.key.range) return pair.key.range[0];
  }
  const node = nodeAt(document, path);
  if (isNode(node) && node.range) return node.range[0];
  return offsetOf(document, parentPath);
}
