import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { isIPv4 } from 'node:net';

/** A name server on loopback, by UDP. */
export interface NameServer {
  /** The form in which a resolver gets it. */
  readonly address: string;
  /** `A name` and `AAAA name` of every question. */
  readonly asked: string[];
  close(): Promise<void>;
}

/** Addresses of both kinds; empty: nobody knows the name; null is no answer; 'refused' says that it will not tell. */
export type NameAnswer = readonly string[] | 'refused' | null;

const [typeA, typeAaaa] = [1, 28];

export async function startNameServer(answerOf: (name: string, kind: 'A' | 'AAAA') => NameAnswer): Promise<NameServer> {
  const socket = createSocket('udp4');
  const asked: string[] = [];
  socket.on('message', (question, from) => {
    const { name, type, end } = read(question);
    const kind = type === typeAaaa ? 'AAAA' : 'A';
    asked.push(`${kind} ${name}`);
    const answer = answerOf(name, kind);
    if (answer === null) return;
    const addresses = answer === 'refused' ? [] : answer.filter((one) => isIPv4(one) === (type === typeA));
    const code = answer === 'refused' ? 5 : answer.length === 0 ? 3 : 0;
    socket.send(
      Buffer.concat([header(question, code, addresses.length), question.subarray(12, end), ...addresses.map(record)]),
      from.port,
      from.address,
    );
  });
  socket.bind(0, '127.0.0.1');
  await once(socket, 'listening');
  return {
    address: `127.0.0.1:${socket.address().port}`,
    asked,
    close: () => new Promise((resolve) => void socket.close(() => resolve())),
  };
}

function read(question: Buffer): { readonly name: string; readonly type: number; readonly end: number } {
  const labels: string[] = [];
  let at = 12;
  for (let length = question.readUInt8(at); length > 0; length = question.readUInt8(at)) {
    labels.push(question.toString('latin1', at + 1, at + 1 + length));
    at += 1 + length;
  }
  return { name: labels.join('.').toLowerCase(), type: question.readUInt16BE(at + 1), end: at + 5 };
}

function header(question: Buffer, code: number, answers: number): Buffer {
  const made = Buffer.alloc(12);
  made.writeUInt16BE(question.readUInt16BE(0), 0);
  made.writeUInt16BE(0x8180 | code, 2);
  made.writeUInt16BE(1, 4);
  made.writeUInt16BE(answers, 6);
  return made;
}

/** A record of the requested name, with a lifetime of zero. */
function record(address: string): Buffer {
  const bytes = isIPv4(address) ? Buffer.from(address.split('.').map(Number)) : bytesOf(address);
  const head = Buffer.alloc(12);
  head.writeUInt16BE(0xc00c, 0);
  head.writeUInt16BE(bytes.length === 4 ? typeA : typeAaaa, 2);
  head.writeUInt16BE(1, 4);
  head.writeUInt16BE(bytes.length, 10);
  return Buffer.concat([head, bytes]);
}

function bytesOf(address: string): Buffer {
  const [left = '', right = ''] = address.split('::');
  const groups = (text: string): string[] => (text === '' ? [] : text.split(':'));
  const [before, after] = [groups(left), groups(right)];
  const zeros = Array.from({ length: 8 - before.length - after.length }, () => '0');
  return Buffer.from([...before, ...zeros, ...after].map((group) => group.padStart(4, '0')).join(''), 'hex');
}
