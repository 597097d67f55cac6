/** Numbers that look random and are the same for the same seed. */

/** A number from a text (FNV-1a). */
export function seedOf(text) {
  let hash = 0x811c9dc5;
  for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193);
  return hash >>> 0;
}

export class Random {
  constructor(seed) {
    this.state = typeof seed === "string" ? seedOf(seed) : seed >>> 0;
  }

  /** From 0 to 1, without 1 (mulberry32). */
  next() {
    this.state = (this.state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), this.state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  }

  /** A whole number from 0 to `below`, without `below`. */
  below(below) {
    return Math.floor(this.next() * below);
  }

  chance(probability) {
    return this.next() < probability;
  }

  pick(list) {
    return list[this.below(list.length)];
  }

  /** `count` different elements. */
  sample(list, count) {
    const left = [...list];
    return Array.from({ length: Math.min(count, list.length) }, () => left.splice(this.below(left.length), 1)[0]);
  }

  /** Cuts what has `length` and `slice` into up to `most` pieces at random places; none is empty. */
  cut(whole, most) {
    const places = new Set(Array.from({ length: this.below(most) }, () => 1 + this.below(Math.max(1, whole.length - 1))));
    const sorted = [0, ...[...places].filter((place) => place < whole.length).sort((a, b) => a - b), whole.length];
    return sorted.slice(1).map((end, index) => whole.slice(sorted[index], end)).filter((piece) => piece.length > 0);
  }
}
