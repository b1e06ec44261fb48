// Elements made of values. Whatever is shown becomes a text node: nothing is ever read as markup.

const SVG = "http://www.w3.org/2000/svg";

export function el(name, options = {}, ...children) {
  return filled(document.createElement(name), options, children);
}

export function svg(name, options = {}, ...children) {
  return filled(document.createElementNS(SVG, name), options, children);
}

function filled(node, options, children) {
  for (const [key, value] of Object.entries(options)) {
    if (value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((one) => one !== null && one !== undefined).map((one) => (one instanceof Node ? one : String(one))));
  return node;
}

export function byId(id) {
  return document.getElementById(id);
}

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 100) return `${seconds.toFixed(seconds < 10 ? 2 : 1)} s`;
  const minutes = Math.floor(seconds / 60);
  return minutes < 100 ? `${minutes} min ${Math.round(seconds % 60)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// For how long something goes on: no finer than somebody can follow.
export function spent(seconds) {
  return seconds < 100 ? `${Math.max(0, Math.floor(seconds))} s` : duration(Math.floor(seconds));
}

// For how long it has been going on, or how long ago it was; it ages by itself, see grow().
export function age(at) {
  return el("span", { "data-age-since": at }, spent(Date.now() / 1000 - at));
}

export function grow() {
  const now = Date.now() / 1000;
  for (const one of document.querySelectorAll("[data-age-since]")) {
    const text = spent(now - Number(one.dataset.ageSince));
    if (one.textContent !== text) one.textContent = text;
  }
}

// The children of `parent` become these; those that are the same stay, with their focus and what is selected in them.
export function renew(parent, children) {
  grow(); // an age alone makes no difference
  const old = [...parent.childNodes];
  for (const [at, one] of children.entries()) {
    if (!old[at]) parent.append(one);
    else if (!old[at].isEqualNode(one)) old[at].replaceWith(one);
  }
  for (const one of old.slice(children.length)) one.remove();
}

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}

export function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  for (; bytes >= 1024 && at < units.length - 1; at++) bytes /= 1024;
  return `${at && bytes < 10 ? bytes.toFixed(1) : Math.round(bytes)} ${units[at]}`;
}

export function amount(count) {
  return count.toLocaleString("en");
}

export function ago(seconds) {
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  return minutes < 2880 ? `${Math.floor(minutes / 60)} h` : `${Math.floor(minutes / 1440)} days`;
}

// A bar that is full to `share`, with a line at `mark`.
export function meter(share, mark, tone, label) {
  const percent = (one) => `${(Math.max(0, Math.min(1, one)) * 100).toFixed(1)}%`;
  const line = mark === null ? null : svg("rect", { x: percent(Math.min(mark, 0.995)), y: 0, width: 2, height: 12, class: "mark" });
  return svg("svg", { class: "meter", role: label ? "img" : undefined, "aria-hidden": label ? undefined : "true", "aria-label": label || undefined }, svg("rect", { width: "100%", y: 2, height: 8, rx: 2, class: "rest" }), svg("rect", { width: percent(share), y: 2, height: 8, rx: 2, class: tone }), line);
}

// What is drawn anew loses the focus: it goes to the same thing again.
export function keepFocus(part, draw) {
  const focused = part.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  draw();
  if (focused !== undefined) [...part.querySelectorAll("[data-focus]")].find((one) => one.dataset.focus === focused)?.focus({ preventScroll: true });
}

// A small line of numbers, the newest on the right; it begins at zero.
export function spark(values, label) {
  const most = Math.max(...values, 1e-9);
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((one, at) => `${(at * step).toFixed(1)},${(18 - (one / most) * 16).toFixed(1)}`).join(" ");
  return svg("svg", { class: "spark", viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img", "aria-label": label }, svg("polyline", { points: values.length > 1 ? points : "0,18 100,18", "vector-effect": "non-scaling-stroke" }));
}
