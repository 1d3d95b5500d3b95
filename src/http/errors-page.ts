import { ERROR_CODES, type ErrorCode } from '../core/errors.ts';
import { STATUS_OF } from './codes.ts';

/** The page to which the `type` of a problem leads. */
export function errorsPage(): string {
  const codes = Object.keys(ERROR_CODES) as ErrorCode[];
  const rows = codes.map(
    (code) => `<tr id="${code}"><td><code>${code}</code><td>${STATUS_OF[code]}<td>${ERROR_CODES[code]}`,
  );
  return [
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>Ebbmark: error codes</title>',
    '<style>body{font-family:system-ui;margin:2rem}td,th{text-align:left;padding:.2rem 1rem .2rem 0}:target{background:#ffd}</style>',
    '<h1>Error codes</h1><p>Codes are stable; match them, not the texts.',
    `<table><tr><th>Code<th>Status<th>Meaning${rows.join('')}</table></html>`,
  ].join('\n');
}
