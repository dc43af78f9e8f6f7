export { type BooksFinding, type BooksProof, type ProvenLedger, verifyBooks } from './verify-books.ts';
