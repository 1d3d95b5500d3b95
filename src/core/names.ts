import { TOPIC_BYTES } from './bounds.ts';
import { QueueError, show } from './errors.ts';

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this looks for
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** Whether every surrogate of the text stands in a pair, so that it survives UTF-8. */
export const isWellFormed = (text: string): boolean => {
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0xd800 || unit > 0xdfff) continue;
    const next = text.charCodeAt(i + 1);
    if (unit > 0xdbff || !(next >= 0xdc00 && next <= 0xdfff)) return false;
    i++;
  }
  return true;
};

export const utf8Bytes = (text: string): number => {
  let bytes = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    bytes += unit < 0x80 ? 1 : unit < 0x800 || (unit >= 0xd800 && unit <= 0xdfff) ? 2 : 3;
  }
  return bytes;
};

/** Why a text can't be a topic's name, or null. */
export function topicNameFault(name: unknown): string | null {
  if (typeof name !== 'string') return 'a string';
  if (name.length === 0) return 'at least one character long';
  if (!isWellFormed(name)) return 'free of lone surrogates';
  if (utf8Bytes(name) > TOPIC_BYTES) return `at most ${TOPIC_BYTES} bytes of UTF-8 long`;
  if (CONTROL.test(name)) return 'free of control characters';
  if (name.includes('*')) return "free of '*', which stands for a prefix in a lease";
  if (name === '.' || name === '..') return "other than '.' and '..', which addresses lose on their way";
  return null;
}

const checked = new Set<string>();

/** Returns the name if a topic may have it. @throws QueueError `topic-invalid` */
export function checkTopic(name: unknown, path = '/topic'): string {
  if (checked.has(name as string)) return name as string;
  const fault = topicNameFault(name);
  if (fault) {
    const message = `${show(name)} is not ${fault}; for example: "mail.example.org"`;
    throw new QueueError('topic-invalid', `${path}: ${message}`, [{ path, message }]);
  }
  if (checked.size >= 10_000) checked.clear();
  checked.add(name as string);
  return name as string;
}

/** What a lease asks for: a topic's name, or what names begin with. @throws QueueError `topic-invalid` */
export function checkSelector(topic: unknown, path = '/topic'): { readonly text: string; readonly prefix: boolean } {
  if (typeof topic === 'string' && topic.endsWith('*')) {
    const text = topic.slice(0, -1);
    if (text !== '') checkTopic(text, path);
    return { text, prefix: true };
  }
  return { text: checkTopic(topic, path), prefix: false };
}
