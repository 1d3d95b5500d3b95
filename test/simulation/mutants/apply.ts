import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Edit, Mutant } from './mutants.ts';

/** Where the words of a snippet stand in a text, whatever stands between them as white space. */
function places(text: string, find: string): readonly { readonly at: number; readonly length: number }[] {
  const words = find.trim().split(/\s+/);
  const pattern = words.map((word) => word.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).join('\\s+');
  return [...text.matchAll(new RegExp(pattern, 'g'))].map((match) => ({ at: match.index, length: match[0].length }));
}

/** @throws where a snippet does not stand exactly once in its file */
function edited(text: string, { file, find, replace }: Edit): string {
  const found = places(text, find);
  if (found.length !== 1) throw new Error(`${file} has ${found.length} places like: ${find}`);
  const { at, length } = found[0]!;
  return text.slice(0, at) + replace + text.slice(at + length);
}

/** The files of a mutant as they are to be, by their paths; the tree stays as it is. */
function mutated(root: string, { name, edits }: Mutant): ReadonlyMap<string, string> {
  const files = new Map<string, string>();
  for (const edit of edits) {
    const text = files.get(edit.file) ?? readFileSync(join(root, edit.file), 'utf8');
    try {
      files.set(edit.file, edited(text, edit));
    } catch (error) {
      throw new Error(`${name}: ${(error as Error).message}`);
    }
  }
  return files;
}

/** What keeps mutants from being applied to a tree; empty: nothing. */
export function misfits(root: string, mutants: readonly Mutant[]): readonly string[] {
  return mutants.flatMap((mutant) => {
    try {
      mutated(root, mutant);
      return [];
    } catch (error) {
      return [(error as Error).message];
    }
  });
}

/** Writes a mutant into a copy of the tree. */
export function apply(root: string, mutant: Mutant): void {
  for (const [file, text] of mutated(root, mutant)) writeFileSync(join(root, file), text);
}
