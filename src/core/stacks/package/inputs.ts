import { reservedInputs } from '#core/stacks/names.ts';
import { fits, type InputType, inputTypes, type InputValue } from './input-types.ts';
import { inputsMax } from './limits.ts';
import type { Manifest, ManifestInput } from './manifest.ts';
import type { ModuleVariable } from './module.ts';
import type { PackageProblem } from './problem.ts';

/** A value that a run of the stack asks for. */
export interface StackInput {
  readonly name: string;
  readonly type: InputType;
  /** The module's type expression, such as `list(string)`; null if the module declares no type. */
  readonly typeExpression: string | null;
  readonly description: string;
  readonly required: boolean;
  /** Default value; null if there is none. */
  readonly default: InputValue;
  /**
   * True if the default is the module's own, which Terraform fills in itself. If absent, a run passes the default on.
   */
  readonly isModuleDefault?: true;
  readonly sensitive: boolean;
}

export interface InputsFound {
  readonly inputs: readonly StackInput[];
  readonly problems: readonly PackageProblem[];
  readonly warnings: readonly string[];
}

/** Types by the outermost word of Terraform's type expressions. */
const typeWords: ReadonlyMap<string, InputType> = new Map([
  ['string', 'string'],
  ['number', 'number'],
  ['bool', 'bool'],
  ['list', 'list'],
  ['set', 'list'],
  ['tuple', 'list'],
  ['map', 'map'],
  ['object', 'map'],
]);

/** Returns the type of a type expression, or else of the default; a variable with neither takes text. */
function typeOf({ typeExpression, default: value }: ModuleVariable): InputType {
  const word = /^\s*([a-z]+)/.exec(typeExpression ?? '')?.[1] ?? '';
  const known = typeWords.get(word);
  if (known !== undefined) return known;
  return inputTypes.find((type) => value !== null && fits(type, value)) ?? 'string';
}

/**
 * Returns the inputs of a stack. If the manifest names inputs, it decides which and in what order; variables that the
 * module also requires are added, because no run could work without them.
 */
export function findInputs(manifest: Manifest | null, variables: readonly ModuleVariable[]): InputsFound {
  const own = variables.filter(({ name }) => !reservedInputs.has(name));
  const found =
    manifest?.inputs === null || manifest === null
      ? { inputs: own.map(derived), problems: [], warnings: [] }
      : merged(manifest.inputs, own);
  const { length } = found.inputs;
  if (length <= inputsMax) return found;
  const tooMany = { field: 'inputs', message: `has ${length} inputs, but at most ${inputsMax} are allowed` };
  return { ...found, problems: [...found.problems, tooMany] };
}

function derived(variable: ModuleVariable): StackInput {
  return {
    name: variable.name,
    type: typeOf(variable),
    typeExpression: variable.typeExpression,
    description: variable.description,
    required: !variable.hasDefault,
    default: variable.default,
    ...(variable.hasDefault && { isModuleDefault: true }),
    sensitive: variable.isSensitive,
  };
}

function merged(stated: readonly ManifestInput[], variables: readonly ModuleVariable[]): InputsFound {
  const problems: PackageProblem[] = [];
  const warnings: string[] = [];
  const seen = new Set<string>();
  const inputs: StackInput[] = [];
  for (const input of stated) {
    const { name } = input;
    const wrong = (message: string): void => void problems.push({ field: `inputs.${name}`, message });
    if (reservedInputs.has(name)) wrong('is a name that the platform sets itself');
    if (seen.has(name)) wrong('is listed twice');
    seen.add(name);
    const variable = variables.find((one) => one.name === name) ?? undeclared;
    if (variable === undeclared && !reservedInputs.has(name)) {
      warnings.push(`the module has no variable ${name}: this input is ignored`);
    }
    for (const message of contradictions(input, variable)) wrong(message);
    inputs.push(toInput(input, variable));
  }
  const needed = variables.filter(({ name, hasDefault }) => !hasDefault && !seen.has(name));
  if (needed.length > 0) {
    warnings.push(
      `the module requires inputs that are missing in the manifest: ${needed.map(({ name }) => name).join(', ')}`,
    );
  }
  return { inputs: [...inputs, ...needed.map(derived)], problems, warnings };
}

/** Stands for the variable of an input that the module does not have. */
const undeclared: ModuleVariable = {
  name: '',
  typeExpression: null,
  description: '',
  hasDefault: false,
  default: null,
  isSensitive: false,
  isEphemeral: false,
};

function contradictions(input: ManifestInput, variable: ModuleVariable): string[] {
  const problems: string[] = [];
  const { typeExpression, hasDefault } = variable;
  const declared = typeOf(variable);
  const isFree = typeExpression === null || /^\s*any\b/.test(typeExpression);
  if (input.type !== null && input.type !== declared && !isFree) {
    problems.push(`is a ${input.type} in the manifest, but ${typeExpression} in the module`);
  }
  const type = input.type ?? declared;
  if (input.default !== null && !fits(type, input.default)) problems.push(`has a default of a type other than ${type}`);
  const isNeeded = variable !== undeclared && !hasDefault;
  if (input.required === false && input.default === null && isNeeded) {
    problems.push('is optional and has no default, but the module requires it');
  }
  return problems;
}

function toInput(input: ManifestInput, variable: ModuleVariable): StackInput {
  return {
    name: input.name,
    type: input.type ?? typeOf(variable),
    typeExpression: variable.typeExpression,
    description: input.description ?? variable.description,
    required: input.required ?? (input.default === null && !variable.hasDefault),
    default: input.default ?? variable.default,
    ...(input.default === null && variable.hasDefault && { isModuleDefault: true }),
    // A sensitive variable of the module stays hidden even if the manifest does not mark it.
    sensitive: input.sensitive === true || variable.isSensitive,
  };
}
