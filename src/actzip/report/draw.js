// Elements, numbers and the tip that shows what is under the pointer.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children; a text child stays text, whatever is in it. */
function el(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "text", "rect", "circle"].includes(name);
  const made = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.setAttribute("class", value);
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

// -- numbers ------------------------------------------------------------------------------

function bytes(value, digits = 2) {
  for (const unit of ["B", "KiB", "MiB"]) {
    if (Math.abs(value) < 1024) return `${value.toFixed(unit === "B" ? 0 : digits)}\u00a0${unit}`;
    value /= 1024;
  }
  return `${value.toFixed(digits)}\u00a0GiB`;
}

const times = (value) => `${value.toFixed(2)}×`;
const percent = (value, digits = 2) => `${(100 * value).toFixed(digits)}\u00a0%`;

/** A number with three figures that count: 0.0123, 4.56, 789. */
function figures(value) {
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size < -3 || size > 5) return value.toExponential(1);
  return value.toFixed(Math.max(0, 2 - size));
}

function duration(milliseconds) {
  return milliseconds >= 1000 ? `${(milliseconds / 1000).toFixed(2)}\u00a0s` : `${milliseconds.toFixed(0)}\u00a0ms`;
}

/** About `count` round numbers from `low` to `high`: powers of two if binary, no parts if whole. */
function ticks(low, high, count, { binary = false, whole = false } = {}) {
  const rough = (high - low) / Math.max(1, count) || 1;
  let step;
  if (binary) {
    step = 2 ** Math.ceil(Math.log2(rough));
  } else {
    const power = 10 ** Math.floor(Math.log10(rough));
    step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * 0.999);
  }
  if (whole) step = Math.max(1, step);
  const found = [];
  for (let at = Math.ceil(low / step) * step; at <= high + step * 1e-6; at += step) found.push(at);
  return found;
}

// -- the tip ------------------------------------------------------------------------------

const tip = el("div", { id: "tip", role: "status", "aria-live": "polite" });

/** Show lines [{colour, name, value, dashed}] under a title, near a place of the window. */
function showTip(x, y, title, lines) {
  const rows = lines.map((line) =>
    el(
      "div",
      { class: "row", style: line.colour ? `--c:${line.colour}` : null },
      line.colour ? el("span", { class: line.dashed ? "key dashed" : "key" }) : null,
      el("span", {}, line.name),
      el("span", {}, line.value),
    ),
  );
  tip.replaceChildren(el("b", {}, title), ...rows);
  tip.classList.add("on");
  const { width, height } = tip.getBoundingClientRect();
  const right = x + 16 + width > innerWidth ? x - 16 - width : x + 16;
  const below = y + 16 + height > innerHeight ? y - 16 - height : y + 16;
  const inside = (at, most) => Math.max(6, Math.min(at, most - 6));
  tip.style.transform = `translate(${inside(right, innerWidth - width)}px, ${inside(below, innerHeight - height)}px)`;
}

function hideTip() {
  tip.classList.remove("on");
}

/** Call `draw(width)` now and whenever the width of `box` changes. */
function fitted(box, draw) {
  let last = 0;
  new ResizeObserver(() => {
    const width = Math.floor(box.clientWidth);
    if (width > 0 && width !== last) draw((last = width));
  }).observe(box);
}
