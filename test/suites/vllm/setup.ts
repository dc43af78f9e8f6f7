import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { findScratch } from '#test/scratch.ts';
import { shareInRun } from '#test/share.ts';
import { readTensors, writeTensors } from './safetensors.ts';

/** A token of two layers costs a sixth of the CPU time of one of thirty, and its words make no sense. */
const layersKept = 2;

/** Names in VLLM_MODEL, for the whole run, a copy of the model with its first layers only. */
export async function setup(): Promise<() => Promise<void>> {
  const shared = await shareInRun('vllm-model', async () => {
    const { VLLM_MODEL: whole = '' } = process.env;
    // A model that is a name or has several files stays as it is.
    if (!existsSync(join(whole, 'model.safetensors'))) return { value: whole, stop: async () => undefined };
    const folder = mkdtempSync(join(findScratch().dir, 'hg-model-'));
    writeFirstLayers(whole, folder);
    process.env['VLLM_MODEL'] = folder;
    return {
      value: folder,
      async stop() {
        process.env['VLLM_MODEL'] = whole;
        rmSync(folder, { recursive: true, force: true });
      },
    };
  });
  return shared.release;
}

function writeFirstLayers(whole: string, folder: string): void {
  const isWeights = (path: string): boolean => path.endsWith('/model.safetensors');
  cpSync(whole, folder, { recursive: true, filter: (path) => !isWeights(path) });
  const config = JSON.parse(readFileSync(join(whole, 'config.json'), 'utf8')) as object;
  writeFileSync(join(folder, 'config.json'), JSON.stringify({ ...config, num_hidden_layers: layersKept }));
  const isKept = (name: string): boolean => Number(/\.layers\.(\d+)\./.exec(name)?.[1] ?? 0) < layersKept;
  writeTensors(join(folder, 'model.safetensors'), readTensors(join(whole, 'model.safetensors'), isKept));
}
