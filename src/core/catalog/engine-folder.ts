import { open } from 'node:fs/promises';
import { basename, join } from 'node:path';
import {
  checkEngineFile,
  engineFileBytesMax,
  type EngineFileProblem,
  type EngineFilesOptions,
  type EngineFilesResult,
  loadEngineFiles,
} from '#core/catalog/files/files.ts';

/** The folder with the engine files. Nothing here writes. */
export interface EngineFolder {
  /** Reads all files. */
  read(): EngineFilesResult;
  /**
   * Returns the text of an engine's file as it is now.
   * @param file as a definition names it: `engines/chat.yaml`
   * @returns null if the file cannot be read
   */
  textOf(file: string): Promise<string | null>;
  /** Returns the problems that a text has as the file of this name, beside the other files of the folder. */
  check(name: string, text: string): readonly EngineFileProblem[];
}

export function createEngineFolder(folder: string, options: EngineFilesOptions = {}): EngineFolder {
  return {
    read: () => loadEngineFiles(folder, options),
    check: (name, text) => checkEngineFile(folder, { name, text }, options),
    async textOf(file) {
      const handle = await open(join(folder, basename(file))).catch(() => null);
      if (handle === null) return null;
      try {
        const { size } = await handle.stat();
        return size > engineFileBytesMax ? null : await handle.readFile('utf8');
      } catch {
        return null;
      } finally {
        await handle.close();
      }
    },
  };
}
