// How precisely each tensor was stored, over the steps: a row for each, a stronger colour is more precise.

/** rows [{name, steps: […], values: […]}] of one kind, "bits" or "error"; last: the last step. */
class Sites {
  constructor(box, { rows, kind, last, colour }) {
    Object.assign(this, { box, rows, kind, last, colour });
    const all = rows.flatMap((row) => row.values).map((value) => this.depth(value));
    this.least = Math.min(...all);
    this.most = Math.max(...all);
    this.at = [0, last];
    fitted(box, (width) => this.draw(width));
  }

  /** More for what is stored more precisely. */
  depth = (value) => (this.kind === "bits" ? value : -Math.log10(value));
  shade = (value) => (this.most > this.least ? 0.1 + (0.9 * (this.depth(value) - this.least)) / (this.most - this.least) : 0.55);
  said = (value) => (this.kind === "bits" ? `${figures(value)} bits` : `± ${figures(value)}`);
  px = (step) => this.left + ((step - 1) / Math.max(1, this.last - 1)) * (this.width - this.left - RIGHT);

  draw(width) {
    this.width = width;
    this.left = Math.min(300, Math.round(width * 0.36));
    this.row = Math.max(8, Math.min(17, Math.round(520 / this.rows.length)));
    const bottom = this.rows.length * this.row, height = bottom + 40;
    const svg = el("svg", {
      viewBox: `0 0 ${width} ${height}`, height, tabindex: 0, role: "img",
      "aria-label": `${this.kind} of ${this.rows.length} stored tensors over ${this.last} steps`,
      onpointermove: (event) => this.point(event), onpointerdown: (event) => this.point(event),
      onpointerleave: hideTip, onblur: hideTip, onkeydown: (event) => this.key(event),
      onfocus: () => svg.matches(":focus-visible") && this.show(...this.at),
    });
    this.svg = svg;
    this.rows.forEach((row, i) => this.line(svg, row, i));
    for (const step of ticks(1, this.last, Math.min(8, width / 110), { whole: true })) {
      svg.append(el("text", { x: this.px(step), y: bottom + 17, "text-anchor": "middle" }, String(step)));
    }
    svg.append(el("text", { x: width - RIGHT, y: bottom + 35, "text-anchor": "end" }, "step"));
    this.scale(svg, bottom);
    this.box.replaceChildren(svg);
  }

  line(svg, row, i) {
    const every = Math.ceil(11 / this.row), room = Math.floor(this.left / 6.4) - 2;
    if (i % every === 0) {
      const fits = row.name.length > room ? row.name.split(" · ")[0] : row.name;
      const name = fits.length > room ? `…${fits.slice(1 - room)}` : fits;
      svg.append(el("text", { x: this.left - 8, y: (i + 0.5) * this.row + 4, "text-anchor": "end", style: "font-size:11px" }, name));
    }
    row.values.forEach((value, k) => {
      const from = this.px(row.steps[k]), to = this.px(row.steps[k + 1] ?? this.last);
      svg.append(el("rect", {
        class: "cell", style: `--c:${this.colour}`, "fill-opacity": this.shade(value).toFixed(3),
        x: from.toFixed(1), y: i * this.row + 0.5, width: Math.max(1, to - from).toFixed(1), height: this.row - 1,
      }));
    });
  }

  /** What the shades mean. */
  scale(svg, bottom) {
    const value = (depth) => this.said(this.kind === "bits" ? depth : 10 ** -depth);
    const steps = this.most > this.least ? 8 : 1, y = bottom + 25;
    svg.append(el("text", { x: 0, y: y + 10 }, value(this.least)));
    if (steps === 1) return;
    for (let i = 0; i < steps; i++) {
      svg.append(el("rect", { class: "cell", style: `--c:${this.colour}`, "fill-opacity": 0.1 + (0.9 * i) / (steps - 1), x: 72 + 11 * i, y, width: 11, height: 11 }));
    }
    svg.append(el("text", { x: 72 + 11 * steps + 7, y: y + 10 }, value(this.most)));
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const i = Math.floor((event.clientY - box.top) / this.row);
    const part = (event.clientX - box.left - this.left) / (box.width - this.left - RIGHT);
    if (i < 0 || i >= this.rows.length || part > 1) return hideTip();
    this.show(i, 1 + Math.max(0, part) * (this.last - 1), event.clientX, event.clientY);
  }

  key(event) {
    const [i, step] = this.at, wide = Math.max(1, this.last / 50);
    const to = { ArrowUp: [i - 1, step], ArrowDown: [i + 1, step], ArrowLeft: [i, step - wide], ArrowRight: [i, step + wide] }[event.key];
    if (event.key === "Escape") hideTip();
    if (!to) return;
    event.preventDefault();
    this.show(Math.max(0, Math.min(this.rows.length - 1, to[0])), Math.max(1, Math.min(this.last, to[1])));
  }

  show(i, step, x = null, y = null) {
    this.at = [i, step];
    const row = this.rows[i], box = this.svg.getBoundingClientRect();
    let k = row.steps.findLastIndex((from) => from <= step);
    k = Math.max(0, k);
    const lines = [{ colour: this.colour, name: `step ${Math.round(step)}`, value: this.said(row.values[k]) }];
    showTip(x ?? box.left + this.px(step), y ?? box.top + (i + 0.5) * this.row, row.name, lines);
  }
}
