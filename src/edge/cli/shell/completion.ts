import { jsonText } from './answers.ts';
import { type Command, type CommandOption, exitCodes, globalOptions, type NamedThing } from './command.ts';
import { briefly } from './help.ts';

/** `headgate completion`: prints a completion script for a shell, generated from the list of commands. */

interface Completed {
  /** Name of the command: one word, or group and name. */
  readonly name: string;
  readonly summary: string;
  readonly options: readonly (readonly [name: string, option: CommandOption])[];
  readonly choices: readonly string[];
  /** Kind of names to read from the gateway, in place of choices. */
  readonly names: NamedThing | null;
}

function tableOf(commands: readonly Command[]): readonly Completed[] {
  // A shell uses the first pattern that matches: longer names must precede their prefixes.
  const longerFirst = commands.toSorted((a, b) => b.name.split(' ').length - a.name.split(' ').length);
  return longerFirst.map(({ name, summary, options, choices = [], names = null }) => ({
    name,
    summary: briefly({ summary }),
    options: Object.entries({ ...options, ...globalOptions }),
    choices,
    names,
  }));
}

const firstWords = (table: readonly Completed[]): readonly string[] => [
  ...new Set(table.map(({ name }) => name.split(' ')[0] ?? '')),
  'help',
];

function secondWords(table: readonly Completed[], first: string): readonly Completed[] {
  return table
    .filter(({ name }) => name.startsWith(`${first} `))
    .map((command) => ({ ...command, name: command.name.slice(first.length + 1) }));
}

/** Returns the shell code that reads names while somebody types; an unreachable gateway offers none. */
const namesOf = (thing: NamedThing): string => `$(headgate names ${thing} 2>/dev/null)`;

/** Quotes a text for a shell. Commands and options need no quotes: they consist of letters, digits and hyphens. */
const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`;

function bash(table: readonly Completed[]): string {
  const firsts = firstWords(table);
  const groups = firsts.flatMap((first) => {
    const seconds = secondWords(table, first).map(({ name }) => name);
    const own = table.find(({ name }) => name === first)?.options ?? [];
    const flags = own.map(([option]) => `--${option}`).join(' ');
    const line = `    ${quoted(`${first} `)}) words=${quoted(seconds.join(' '))}; flags=${quoted(flags)} ;;`;
    return seconds.length === 0 ? [] : [line];
  });
  const commands = table.map(({ name, options, choices, names }) => {
    const values = options.flatMap(([option, about]) => bashValue(option, about));
    const flags = options.map(([option]) => `--${option}`).join(' ');
    const branches = values.length === 0 ? '' : `case $prev in ${values.join(' ')} esac; `;
    // Names take a moment to read, so options are completed without them.
    const words =
      names === null ? `words=${quoted(choices.join(' '))}` : `[[ $cur == -* ]] || words="${namesOf(names)}"`;
    // After a name of one word, the second word may be an argument.
    const pattern = name.includes(' ') ? quoted(name) : `${quoted(`${name} `)}*`;
    return `    ${pattern}) ${branches}flags=${quoted(flags)}; ${words} ;;`;
  });
  return `# headgate completion bash: eval "$(headgate completion bash)" in ~/.bashrc
_headgate() {
  local cur=\${COMP_WORDS[COMP_CWORD]} prev=\${COMP_WORDS[COMP_CWORD - 1]} names=() words='' flags='' i
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ \${COMP_WORDS[i]} == -* ]] || names+=("\${COMP_WORDS[i]}")
  done
  COMPREPLY=()
  case "\${names[0]} \${names[1]}" in
    ' ') words=${quoted(firsts.join(' '))}; flags='--json --help --version' ;;
${[...groups, ...commands].join('\n')}
  esac
  if [[ $cur == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$cur"))
  elif [[ -n $words ]]; then
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
  fi
}
complete -o default -F _headgate headgate
`;
}

/** Returns the completion of an option's value: one of its choices, otherwise a file. */
function bashValue(name: string, { type, short, choices, names }: CommandOption): readonly string[] {
  if (type === 'boolean') return [];
  const pattern = short === undefined ? `--${name}` : `--${name} | -${short}`;
  if (names !== undefined) {
    return [`${pattern}) COMPREPLY=($(compgen -W "${namesOf(names)}" -- "$cur")); return ;;`];
  }
  if (choices === undefined) return [`${pattern}) return ;;`];
  return [`${pattern}) COMPREPLY=($(compgen -W ${quoted(choices.join(' '))} -- "$cur")); return ;;`];
}

/** Formats a completion for _describe: `name:what it does`. */
const described = (name: string, about: string): string => quoted(`${name.replaceAll(':', '\\:')}:${about}`);

function zsh(table: readonly Completed[]): string {
  const firsts = firstWords(table).map((first) => {
    const own = table.find(({ name }) => name === first)?.summary;
    return described(
      first,
      own ??
        secondWords(table, first)
          .map(({ name }) => name)
          .join(', '),
    );
  });
  const groups = firstWords(table).flatMap((first) => {
    const seconds = secondWords(table, first);
    if (seconds.length === 0 || table.some(({ name }) => name === first)) return [];
    const list = seconds.map(({ name, summary }) => described(name, summary)).join(' ');
    return [`    ${quoted(`${first} `)}) names=(${list}); _describe command names; return ;;`];
  });
  const commands = table.map(({ name, options, choices, names }) => {
    const specs = options.flatMap(([option, about]) => zshOption(option, about));
    const more = name.includes(' ') ? [] : secondWords(table, name).map((second) => second.name);
    const offered = [...choices, ...more];
    const words = names !== null ? zshNames(names) : offered.length === 0 ? '_files' : `(${offered.join(' ')})`;
    const pattern = name.includes(' ') ? quoted(name) : `${quoted(`${name} `)}*`;
    return `    ${pattern}) _arguments ${[...specs, quoted(`*:word:${words}`)].join(' ')} ;;`;
  });
  return `#compdef headgate
# headgate completion zsh: into a file _headgate in a folder of $fpath, or eval "$(headgate completion zsh)" in ~/.zshrc
_headgate_names() {
  local -a found
  found=(\${(f)"$(headgate names $1 2>/dev/null)"})
  compadd -a found
}
_headgate() {
  local -a names
  local word first='' second=''
  for word in \${words[2,CURRENT-1]}; do
    [[ $word == -* ]] && continue
    if [[ -z $first ]]; then first=$word; elif [[ -z $second ]]; then second=$word; fi
  done
  case "$first $second" in
    ' ') names=(${firsts.join(' ')}); _describe command names; return ;;
${[...groups, ...commands].join('\n')}
  esac
}
if [[ $funcstack[1] == _headgate ]]; then _headgate "$@"; else compdef _headgate headgate; fi
`;
}

/** Returns the action for names. zsh calls an action that begins with a space unchanged. */
const zshNames = (thing: NamedThing): string => ` _headgate_names ${thing}`;

function zshOption(name: string, { type, short, choices, names: thing, about }: CommandOption): readonly string[] {
  const offered = choices === undefined ? '_files' : `(${choices.join(' ')})`;
  const value = type === 'boolean' ? '' : `:value:${thing === undefined ? offered : zshNames(thing)}`;
  const explained = `[${about.replaceAll(/[[\]:]/g, ' ')}]`;
  const names = short === undefined ? [`--${name}`] : [`--${name}`, `-${short}`];
  return names.map((one) => quoted(`${one}${explained}${value}`));
}

function fish(table: readonly Completed[]): string {
  const firsts = firstWords(table).map((first) => {
    const about = table.find(({ name }) => name === first)?.summary ?? '';
    return `complete -c headgate -f -n __headgate_is_first -a ${first} -d ${fishQuoted(about)}`;
  });
  const commands = table.flatMap(({ name, summary, options, choices, names }) => {
    const [first = '', second] = name.split(' ');
    const given = second === undefined ? `__headgate_in ${first}` : `__headgate_in ${first} ${second}`;
    return [
      ...(second === undefined
        ? []
        : [`complete -c headgate -f -n '__headgate_opens ${first}' -a ${second} -d ${fishQuoted(summary)}`]),
      ...options.map(([option, about]) => `complete -c headgate -n '${given}' ${fishOption(option, about)}`),
      ...(choices.length === 0 ? [] : [`complete -c headgate -f -n '${given}' -a ${fishQuoted(choices.join(' '))}`]),
      ...(names === null ? [] : [`complete -c headgate -f -n '${given}' -a '${fishNames(names)}'`]),
    ];
  });
  return `# headgate completion fish > ~/.config/fish/completions/headgate.fish
function __headgate_words
    for word in (commandline -opc)[2..-1]
        string match -q -- '-*' $word; or echo $word
    end
end
function __headgate_is_first
    test (count (__headgate_words)) -eq 0
end
function __headgate_opens
    set -l words (__headgate_words)
    test (count $words) -eq 1; and test $words[1] = $argv[1]
end
function __headgate_in
    set -l words (__headgate_words)
    test (count $words) -ge (count $argv); or return 1
    for i in (seq (count $argv))
        test $words[$i] = $argv[$i]; or return 1
    end
end
${[...firsts, ...commands].join('\n')}
`;
}

const fishQuoted = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", `\\'`)}'`;

const fishNames = (thing: NamedThing): string => `(headgate names ${thing} 2>/dev/null)`;

function fishOption(name: string, { type, short, choices, names, about }: CommandOption): string {
  const words = [`-l ${name}`];
  if (short !== undefined) words.push(`-s ${short}`);
  if (type === 'string') words.push('-r');
  if (choices !== undefined) words.push(`-f -a ${fishQuoted(choices.join(' '))}`);
  if (names !== undefined) words.push(`-f -a '${fishNames(names)}'`);
  words.push(`-d ${fishQuoted(about)}`);
  return words.join(' ');
}

const shells = { bash, zsh, fish };

export const completionCommand: Command = {
  name: 'completion',
  usage: 'bash|zsh|fish',
  summary: 'Print a completion script for a shell; its first lines show how to install it.',
  words: { min: 1, max: 1 },
  choices: Object.keys(shells),
  options: {},
  run({ words, commands, json, out }) {
    const [name, shell] = Object.entries(shells).find(([one]) => one === words[0]) ?? (['bash', bash] as const);
    const script = shell(tableOf(commands));
    out(json ? jsonText({ object: 'completion', shell: name, script }) : script);
    return Promise.resolve(exitCodes.ok);
  },
};
