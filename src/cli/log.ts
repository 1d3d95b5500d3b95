import { type Logger, pino } from 'pino';
import type { LogLevel } from '../config.ts';
import { type LoggedError, loggedError } from './logged-error.ts';

/**
 * The program's log: JSON lines on standard output, or lines for people where that is a terminal. What is logged are
 * names, counts and times; payloads, results, metadata, message ids and secrets never are, nor errors whose text may
 * quote one of them.
 */
export function createLog(level: LogLevel): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: (error: unknown) => loggedError(error) },
    },
    process.stdout.isTTY ? { write: (line: string) => void process.stdout.write(readable(line)) } : process.stdout,
  );
}

/** `12:30:01 info  listening url=http://127.0.0.1:8080` */
function readable(line: string): string {
  const { level, time, msg, ...fields } = JSON.parse(line) as Record<string, unknown>;
  const rest = Object.entries(fields).map(([name, value]) =>
    name === 'err'
      ? readableError(value as LoggedError)
      : ` ${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  return `${String(time).slice(11, 19)} ${String(level).padEnd(5)} ${String(msg)}${rest.join('')}\n`;
}

function readableError({ type, code, message, stack, cause }: LoggedError): string {
  const what = `\n  ${type}${code === undefined ? '' : ` (${code})`}: ${message}`;
  return `${what}${stack === undefined ? '' : `\n${stack}`}${cause === undefined ? '' : readableError(cause)}`;
}
