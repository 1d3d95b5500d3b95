import { type Logger, pino } from 'pino';
import type { LogLevel } from '../config.ts';

/**
 * The program's log: JSON lines on standard output, or lines for people where that is a terminal. What is logged are
 * names, counts and times; payloads, results and metadata never are.
 */
export function createLog(level: LogLevel): Logger {
  return pino(
    {
      level,
      base: null,
      timestamp: pino.stdTimeFunctions.isoTime,
      formatters: { level: (label) => ({ level: label }) },
    },
    process.stdout.isTTY ? { write: (line: string) => void process.stdout.write(readable(line)) } : process.stdout,
  );
}

/** `12:30:01 info  listening url=http://127.0.0.1:8080` */
function readable(line: string): string {
  const { level, time, msg, ...fields } = JSON.parse(line) as Record<string, unknown>;
  const rest = Object.entries(fields).map(([name, value]) =>
    name === 'err' && typeof value === 'object' && value !== null && 'stack' in value
      ? `\n  ${String(value.stack)}`
      : ` ${name}=${typeof value === 'string' ? value : JSON.stringify(value)}`,
  );
  return `${String(time).slice(11, 19)} ${String(level).padEnd(5)} ${String(msg)}${rest.join('')}\n`;
}
