import { resolve } from 'node:path';

/** `./run.sh`, `../models/a.gguf`, and `--model=./a.gguf`. */
const relative = /^(-[^=/\s]*=)?(\.\.?\/.*)$/s;

/**
 * A command in which paths that begin with `./` or `../` are absolute: in an engine file they are relative to that file,
 * wherever the gateway was started. Everything else stays, names of programs and of repositories among it.
 * @param folder of the file
 */
export function withAbsolutePaths(command: readonly string[], folder: string): string[] {
  return command.map((item) => {
    const [, option = '', path] = relative.exec(item) ?? [];
    return path === undefined ? item : `${option}${resolve(folder, path)}`;
  });
}
