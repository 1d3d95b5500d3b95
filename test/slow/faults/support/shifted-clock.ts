/**
 * Sets the clock of a process wrong, as somebody does who sets the machine's: preloaded into a server, it shifts the time
 * of day with each SIGUSR2 by the next of the numbers in TEST_CLOCK_SHIFTS_MS. The monotonic clock goes on as it did.
 */
const shifts = (process.env.TEST_CLOCK_SHIFTS_MS ?? '').split(',').map(Number);
const systemNow = Date.now;
let shiftMs = 0;

Date.now = () => systemNow() + shiftMs;
process.on('SIGUSR2', () => {
  shiftMs = shifts.shift() ?? shiftMs;
});
