// Packets that policies drop: which of it goes on, and what it says about a pod. Pure.

const ON = 30; // seconds after its last packet in which a flow is taken to go on
const KNOWN = 300; // and until which it is still said that there was one

// "on": packets are dropped; "past": they were; "gone": too long ago, or nobody knows when.
export function stage(last, now) {
  const ago = now - last;
  return !last || ago > KNOWN ? "gone" : ago > ON ? "past" : "on";
}
