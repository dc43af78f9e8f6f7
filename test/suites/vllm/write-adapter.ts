import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Tensor, writeTensors } from './safetensors.ts';

interface Config {
  readonly num_hidden_layers: number;
  readonly hidden_size: number;
  readonly head_dim: number;
  readonly num_attention_heads: number;
  readonly num_key_value_heads: number;
}

/** Writes a LoRA adapter of rank 1 for a Llama's attention, as peft does; it makes the model say something else. */
export function writeAdapter(folder: string, modelFolder: string): void {
  const config = JSON.parse(readFileSync(join(modelFolder, 'config.json'), 'utf8')) as Config;
  const { num_hidden_layers: layers, hidden_size: hidden, head_dim: head } = config;
  const widths = { q_proj: config.num_attention_heads * head, v_proj: config.num_key_value_heads * head };
  const tensors = new Map<string, Tensor>();
  const add = (name: string, shape: readonly number[], valueAt: (index: number) => number): void => {
    const length = shape.reduce((product, size) => product * size, 1);
    const bytes = Buffer.from(Float32Array.from({ length }, (_, index) => valueAt(index)).buffer);
    tensors.set(name, { dtype: 'F32', shape, bytes });
  };
  for (let layer = 0; layer < layers; layer += 1) {
    for (const [projection, width] of Object.entries(widths)) {
      const name = `base_model.model.model.layers.${layer}.self_attn.${projection}`;
      add(`${name}.lora_A.weight`, [1, hidden], (index) => Math.sin(index + layer) / 4);
      add(`${name}.lora_B.weight`, [width, 1], (index) => Math.cos(index * 3 + layer));
    }
  }
  mkdirSync(folder, { recursive: true });
  writeTensors(join(folder, 'adapter_model.safetensors'), tensors);
  const adapter = { peft_type: 'LORA', task_type: 'CAUSAL_LM', r: 1, lora_alpha: 4, bias: 'none', lora_dropout: 0 };
  writeFileSync(
    join(folder, 'adapter_config.json'),
    JSON.stringify({ ...adapter, base_model_name_or_path: 'base', target_modules: Object.keys(widths) }),
  );
}
