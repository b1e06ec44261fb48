// Counters of rules, read again and again: how many packets since they are looked at, and how fast. Pure.

const MOMENTS = 30; // of a rate that are kept
const LEAST = 1; // seconds between two readings that make a rate

// A counter after one more reading, in seconds of a clock that never goes back. `more`: the packets since the first one.
export function counted(known, at, packets) {
  if (!known || packets < known.packets) return { at, packets, more: 0, rates: [] }; // its rule was written anew
  if (at - known.at < LEAST) return known;
  const fresh = packets - known.packets;
  return { at, packets, more: known.more + fresh, rates: [...known.rates, fresh / (at - known.at)].slice(-MOMENTS) };
}
