import type { EngineFile } from './engine-file-schema.ts';
import type { FileProblem } from './zod-problems.ts';

/**
 * Detection of secrets. They belong in the gateway's environment; engine files, kept in version control, only refer to
 * them.
 */

const secretName = /(^|_)(API_?KEY|KEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?)(_ID)?$/i;
const reference = /\$\{[A-Za-z_][A-Za-z0-9_]*\}/;

/**
 * Prefixes of keys of well-known services: Hugging Face, OpenAI and compatible ones, GitHub, GitLab, NVIDIA, AWS,
 * Slack.
 */
const secretValue =
  /(^|[\s"'=:])(hf_[A-Za-z0-9]{16,}|sk-[A-Za-z0-9_-]{16,}|gh[pousr]_[A-Za-z0-9]{20,}|glpat-[\w-]{16,}|nvapi-[\w-]{16,}|AKIA[A-Z0-9]{16}|xox[abprs]-[\w-]{10,})/;

/** True if a variable's name suggests a secret: HF_TOKEN does, TOKENIZERS_PARALLELISM does not. */
export function namesSecret(name: string): boolean {
  return secretName.test(name);
}

/** True if a text contains a key in the format of a well-known service. */
export function looksSecret(text: string): boolean {
  return secretValue.test(text);
}

/** Reports secrets in plain text; the messages never repeat them. */
export function secretProblems(engine: EngineFile): FileProblem[] {
  if (engine.driver === 'external') return [];
  const variables = Object.entries(engine.env)
    .filter(([name, value]) => value !== '' && !reference.test(value) && (namesSecret(name) || looksSecret(value)))
    .map(([name]) => ({
      path: ['env', name],
      message: `secrets are not allowed here: set it in the gateway's environment and write "\${${name}}"`,
    }));
  const [field, items] =
    engine.driver === 'process' ? (['command', engine.command] as const) : (['args', engine.args] as const);
  const words = items.flatMap((item, index) =>
    looksSecret(item)
      ? [{ path: [field, index], message: 'secrets are not allowed here: set it under env, by reference' }]
      : [],
  );
  return [...variables, ...words];
}
