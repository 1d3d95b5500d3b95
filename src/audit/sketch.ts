/** Sets that take few bytes a member, so that a store of millions of logs can be looked over in little memory. */

/** cyrb53 (https://github.com/bryc/code/blob/master/jshash/experimental/cyrb53.js): 53 bits of a text. */
function hash53(text: string): number {
  let high = 0xdeadbeef;
  let low = 0x41c6ce57;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    high = Math.imul(high ^ unit, 2_654_435_761);
    low = Math.imul(low ^ unit, 1_597_334_677);
  }
  high = Math.imul(high ^ (high >>> 16), 2_246_822_507) ^ Math.imul(low ^ (low >>> 13), 3_266_489_909);
  low = Math.imul(low ^ (low >>> 16), 2_246_822_507) ^ Math.imul(high ^ (high >>> 13), 3_266_489_909);
  return 4_294_967_296 * (2_097_151 & low) + (high >>> 0);
}

/**
 * A set of texts of which only hashes are kept: 8 to 32 bytes a member. Of a million members and one that is none, the
 * two are taken for the same in one of 10^10 cases.
 */
export class HashSet {
  #slots = new Float64Array(1_024);
  #size = 0;

  add(text: string): void {
    if (this.#size * 2 >= this.#slots.length) this.#grow();
    this.#put(hash53(text) + 1);
  }

  has(text: string): boolean {
    const value = hash53(text) + 1;
    return this.#slots[this.#find(value)] === value;
  }

  #put(value: number): void {
    const at = this.#find(value);
    if (this.#slots[at] === value) return;
    this.#slots[at] = value;
    this.#size++;
  }

  /** Where a value stands, or is to stand. */
  #find(value: number): number {
    const { length } = this.#slots;
    let at = value % length;
    while (this.#slots[at] !== 0 && this.#slots[at] !== value) at = (at + 1) % length;
    return at;
  }

  #grow(): void {
    const before = this.#slots;
    this.#slots = new Float64Array(before.length * 2);
    this.#size = 0;
    for (const value of before) if (value !== 0) this.#put(value);
  }
}

const LAYER_BITS = [1 << 18, 1 << 22, 1 << 26, 1 << 29] as const;
/** Bits a member, and how many of them it sets: one in 10^8 is taken for a member that is none. */
const BITS_PER_MEMBER = 40;
const PROBES = 20;

/**
 * Tells whether a text was perhaps seen before; one that was is never missed. Bloom filters of growing size, 72 MiB in
 * all: enough for 13 million members, and for more it is only wrong more often.
 */
export class SeenBefore {
  readonly #layers: Uint32Array[] = [new Uint32Array(LAYER_BITS[0] / 32)];
  #members = 0;

  /** Notes a text. @returns whether it was perhaps noted before */
  note(text: string): boolean {
    const hash = hash53(text);
    for (const layer of this.#layers) if (isIn(layer, hash)) return true;
    this.#put(hash);
    return false;
  }

  #put(hash: number): void {
    let layer = this.#layers.at(-1)!;
    if (++this.#members * BITS_PER_MEMBER > layer.length * 32 && this.#layers.length < LAYER_BITS.length) {
      layer = new Uint32Array(LAYER_BITS[this.#layers.length]! / 32);
      this.#layers.push(layer);
      this.#members = 1;
    }
    for (let probe = 0; probe < PROBES; probe++) {
      const bit = bitOf(layer, hash, probe);
      layer[bit >>> 5]! |= 1 << (bit & 31);
    }
  }
}

function isIn(layer: Uint32Array, hash: number): boolean {
  for (let probe = 0; probe < PROBES; probe++) {
    const bit = bitOf(layer, hash, probe);
    if ((layer[bit >>> 5]! & (1 << (bit & 31))) === 0) return false;
  }
  return true;
}

/** Two hashes make all others (Kirsch and Mitzenmacher, https://doi.org/10.1002/rsa.20208); the upper bits count. */
function bitOf(layer: Uint32Array, hash: number, probe: number): number {
  const low = hash >>> 0;
  const high = Math.floor(hash / 2 ** 32);
  const first = Math.imul(low, 0x9e3779b1) ^ Math.imul(high, 0x85ebca77);
  const second = Math.imul(low ^ (low >>> 15), 0xc2b2ae3d) + Math.imul(high, 0x27d4eb2f);
  return ((first + Math.imul(probe, second | 1)) >>> 0) >>> (Math.clz32(layer.length) - 4);
}
