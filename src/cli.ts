#!/usr/bin/env node
import { main } from './cli/main.ts';

// `ebbmark topics | head` closes the pipe while there is more to print.
process.stdout.on('error', (error: NodeJS.ErrnoException) => {
  if (error.code === 'EPIPE') process.exit(0);
  throw error;
});

const exitCode = await main(process.argv.slice(2), process.env);
if (exitCode !== null) process.exitCode = exitCode;
