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
  node.append(...children.flat().filter((one) => one !== null && one !== undefined).map((one) => (one instanceof Node ? one : String(one))));
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

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });
}
