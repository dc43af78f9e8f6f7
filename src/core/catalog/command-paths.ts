import { resolve } from 'node:path';

/** Matches `./run.sh`, `../models/a.gguf`, and `--model=./a.gguf`. */
const relative = /^(-[^=/\s]*=)?(\.\.?\/.*)$/s;

/**
 * Returns a command in which paths that begin with `./` or `../` are absolute. In an engine file such paths are
 * relative to the file, wherever the gateway was started. Everything else is unchanged, including names of programs and
 * repositories.
 * @param folder of the engine file
 */
export function withAbsolutePaths(command: readonly string[], folder: string): string[] {
  return command.map((item) => {
    const [, option = '', path] = relative.exec(item) ?? [];
    return path === undefined ? item : `${option}${resolve(folder, path)}`;
  });
}
