// What is new is lit for a moment: one change of colour there and one back. An animation would paint its whole table
// in every frame, which with a thousand rows leaves no time for news.

const MOMENT = 1600; // milliseconds
const lit = new Set();

export function light(row) {
  if (!lit.size) setTimeout(dim, MOMENT);
  lit.add(row);
  row.classList.add("fresh");
}

function dim() {
  for (const row of lit) row.classList.remove("fresh");
  lit.clear();
}
