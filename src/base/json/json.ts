export { type BodyText, LargeText } from './body-text.ts';
export { digestMembers } from './canonical.ts';
export { latin1Json } from './latin1.ts';
export { ListPieces } from './list-pieces.ts';
export { NextMark, StringEnds } from './marks.ts';
export { findMistake, type JsonMistake } from './mistake.ts';
export { pathAt } from './path.ts';
export { type MemberValues, memberSplices, putMembers } from './put-members.ts';
export { ObjectPieces, type PieceMember } from './pieces.ts';
export {
  forEachElement,
  type JsonMember,
  memberCut,
  type ScanBounds,
  scanDocument,
  scanObject,
  skipSpace,
  skipString,
  skipValue,
  type Splice,
  spliceText,
} from './scan.ts';
