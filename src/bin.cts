#!/usr/bin/env node
import nodeVersion = require('./node-version.cts');

const fault = nodeVersion.tooOld(process.version);
if (fault === null) {
  void import('./cli.ts');
} else {
  console.error(fault);
  process.exitCode = 1;
}
