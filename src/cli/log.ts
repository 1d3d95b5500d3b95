import { write } from 'node:fs';
import { Socket } from 'node:net';
import { type Logger, pino } from 'pino';
import type { LogLevel } from '../config.ts';
import { LogStream, type Sink } from './log-stream.ts';
import { type LoggedError, loggedError } from './logged-error.ts';

/** The program's log, and what has become of its lines. */
export interface ProgramLog {
  readonly log: Logger;
  /** Lines that found no room since the start. */
  dropped(): number;
  /** Resolves once all lines are written, or after so many milliseconds. */
  flush(ms: number): Promise<void>;
}

/**
 * The program's log: JSON lines on standard output, or lines for people where that is a terminal. What is logged are
 * names, counts and times; payloads, results, metadata, message ids and secrets never are, nor errors whose text may
 * quote one of them.
 *
 * Nobody ever waits for it. Where standard output is not read, or the disk is full, some lines wait and the others are
 * dropped, and a line tells of that as soon as there is room. (A terminal that is stopped does hold the process.)
 */
export function createLog(level: LogLevel): ProgramLog {
  const stream = new LogStream(standardOutput(), (lines) => {
    told.warn({ lines }, 'lines of this log found no room, and were dropped');
  });
  const isTerminal = process.stdout.isTTY === true;
  // Only what writes: asked for a flush at a fatal line, pino would wait for it.
  const destination = { write: (line: string) => stream.write(isTerminal ? readable(line) : line) };
  const log = pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
      serializers: { err: (error: unknown) => loggedError(error) },
    },
    destination,
  );
  // Also where warnings are not logged: who reads an incomplete log has to know.
  const told = log.child({}, { level: level === 'silent' ? 'silent' : 'warn' });
  return { log, dropped: () => stream.dropped, flush: (ms) => stream.flush(ms) };
}

/**
 * Pipes and sockets are written to by Node without blocking; files it would write to on the main thread, and throw where
 * the disk is full.
 */
function standardOutput(): Sink {
  const { stdout } = process;
  if (!(stdout instanceof Socket)) {
    return (text, done) => {
      const bytes = Buffer.from(text);
      const rest = (from: number): void =>
        write(1, bytes, from, bytes.length - from, null, (error, written) => {
          if (error !== null || from + written >= bytes.length) done(error);
          else rest(from + written);
        });
      rest(0);
    };
  }
  // Where whoever read it is gone, a command ends (cli.ts), and a server goes on. Each write tells of it, too.
  stdout.removeAllListeners('error').on('error', () => {});
  return (text, done) => void stdout.write(text, done);
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
