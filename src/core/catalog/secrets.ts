import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

/** Secrets belong to the gateway's environment; an engine file, which is kept in version control, refers to them. */

const secretName = /(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(_ID)?$/i;
const reference = /\$\{[A-Za-z_][A-Za-z0-9_]*\}/;

/** How keys of well-known services begin: Hugging Face, OpenAI and its like, GitHub, GitLab, NVIDIA, AWS, Slack. */
const secretValue =
  /(^|[\s"'=:])(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|glpat-[\w-]{16,}|nvapi-[\w-]{16,}|AKIA[A-Z0-9]{16}|xox[abprs]-[\w-]{10,})/;

/** Whether a variable of this name holds a secret, by its name: HF_TOKEN does, TOKENIZERS_PARALLELISM does not. */
export function namesSecret(name: string): boolean {
  return secretName.test(name);
}

/** Whether a text holds a key of one of the services whose keys are known by their form. */
export function looksSecret(text: string): boolean {
  return secretValue.test(text);
}

/** Secrets that stand in the clear; the messages never repeat them. */
export function secretProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver === 'external') return [];
  const variables = Object.entries(engine.env)
    .filter(([name, value]) => value !== '' && !reference.test(value) && (namesSecret(name) || looksSecret(value)))
    .map(([name]) => ({
      path: ['env', name],
      message: `a secret does not belong here: set it in the gateway's environment and write "\${${name}}"`,
    }));
  const [field, items] =
    engine.driver === 'process' ? (['command', engine.command] as const) : (['args', engine.args] as const);
  const words = items.flatMap((item, index) =>
    looksSecret(item)
      ? [{ path: [field, index], message: 'a secret does not belong here: give it under env, by reference' }]
      : [],
  );
  return [...variables, ...words];
}
