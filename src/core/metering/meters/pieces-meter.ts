import { ObjectPieces, type PieceMember, type Splice } from '#base/json/json.ts';
import { FinishReasons } from './finish-reasons.ts';
import { hasFigures, type JsonMeterOptions, type MeteredJson } from './json-meter.ts';
import { largeBytesOfToken, textOfLength } from './text-count.ts';
import { openaiUsage, type ShownBill, shownUsage } from './shown-usage.ts';
import { publicNameOf } from './usage-member.ts';

/** Reads a large JSON answer as it comes: each byte once, and never all of it as one text. */
export interface PiecesMeter {
  /** The answer's next bytes as latin1. */
  feed(text: string): void;
  /** Ends the answer; to be called once all of it has come. */
  end(): PiecesMeterResult;
}

/** Result like that of `meterJson`; the splices, in their order, make the text for the client. */
export type PiecesMeterResult =
  | (MeteredJson & { readonly splices: (bill: ShownBill | null) => readonly Splice[] })
  | { readonly ok: false };

const wanted = ['usage', 'model', 'error'];
/** Maximum length of a `usage`; a longer one is invalid. */
const valueCharsMax = 65_536;

export function createPiecesMeter(options: JsonMeterOptions): PiecesMeter {
  const { form = openaiUsage, brokenSign } = options;
  const names = brokenSign === undefined ? wanted : [...wanted, brokenSign.member];
  const pieces = new ObjectPieces(new Set(names), valueCharsMax);
  const reasons = new FinishReasons();
  let bytes = 0;

  return {
    feed(text) {
      bytes += text.length;
      pieces.feed(text);
      if (brokenSign === undefined) reasons.feed(text);
    },
    end() {
      const members = pieces.end();
      if (members === null) return { ok: false };
      const member = members.get('usage');
      if (member !== undefined && !isWhole(member)) return { ok: false };
      const last = member === undefined || form === null ? null : form.read(member.text);
      // Some engines report an error with status 200.
      const tellsError = (members.get('error')?.text ?? 'null') !== 'null';
      if (!hasFigures(last) && tellsError) return { ok: false };
      const aborted = brokenSign?.isBroken(members.get(brokenSign.member)?.text ?? null) ?? reasons.isBroken;
      const splices = (bill: ShownBill | null): readonly Splice[] => splicesOf(pieces, members, bill, options);
      const seen = { last, running: null, text: textOfLength(bytes, largeBytesOfToken) };
      return { ok: true, seen, splices, aborted: aborted || tellsError };
    },
  };
}

function isWhole({ valueStart, valueEnd, text }: PieceMember): boolean {
  return text.length === valueEnd - valueStart;
}

function splicesOf(
  { closedAt }: ObjectPieces,
  members: ReadonlyMap<string, PieceMember>,
  bill: ShownBill | null,
  { rename, form = openaiUsage }: JsonMeterOptions,
): Splice[] {
  const splices: Splice[] = [];
  const member = members.get('usage');
  const shown = bill === null || form === null ? '' : shownUsage(member?.text ?? '', bill, form);
  if (shown !== '' && member !== undefined)
    splices.push({ start: member.valueStart, end: member.valueEnd, text: shown });
  else if (shown !== '') splices.push({ start: closedAt, end: closedAt, text: `,"usage":${shown}` });
  const model = members.get('model');
  if (model !== undefined && rename !== null) {
    splices.push({ start: model.valueStart, end: model.valueEnd, text: publicNameOf(rename) });
  }
  return splices.toSorted((a, b) => a.start - b.start);
}
