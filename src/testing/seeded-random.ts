/** Seeded randomness: sfc32 (http://pracrand.sourceforge.net/RNG_engines.txt), seeded by splitmix32. */
export class SeededRandom {
  #a: number;
  #b: number;
  #c: number;
  #counter = 1;

  constructor(seed: number) {
    let state = seed | 0;
    const mix = (): number => {
      state = (state + 0x9e3779b9) | 0;
      let z = state;
      z = Math.imul(z ^ (z >>> 16), 0x21f0aaad);
      z = Math.imul(z ^ (z >>> 15), 0x735a2d97);
      return (z ^ (z >>> 15)) | 0;
    };
    this.#a = mix();
    this.#b = mix();
    this.#c = mix();
    for (let warm = 0; warm < 12; warm++) this.next();
  }

  /** From 0 up to 1. */
  next(): number {
    const sum = (this.#a + this.#b + this.#counter) | 0;
    this.#counter = (this.#counter + 1) | 0;
    this.#a = this.#b ^ (this.#b >>> 9);
    this.#b = (this.#c + (this.#c << 3)) | 0;
    this.#c = ((this.#c << 21) | (this.#c >>> 11)) + sum;
    this.#c |= 0;
    return (sum >>> 0) / 4_294_967_296;
  }

  /** 22 characters of base64url. */
  token(): string {
    let token = '';
    for (let nth = 0; nth < 22; nth++) token += BASE64URL[Math.floor(this.next() * 64)];
    return token;
  }
}

const BASE64URL = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
