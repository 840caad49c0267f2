// A chart of curves: hovering, touching or arrow keys show the values at one place.

const LEFT = 62, RIGHT = 10, TOP = 12, BOTTOM = 38;

/**
 * series  [{label, colour, dashed, points: [[x, y]…], faint: points}]
 * x, y    {name, format, and of its ticks: binary, whole}; x may have bands [[name, end]…] instead
 * stepped a value holds until the next point
 */
class Lines {
  constructor(box, { name, series, x, y, height = 270, stepped = false, title }) {
    Object.assign(this, { box, name, x, y, height, stepped, title });
    this.series = series.map((each) => ({ ...each, points: each.points.filter(([, y]) => y !== null) }));
    this.hidden = new Set();
    this.at = null; // where the cursor is, in units of x
    fitted(box, (width) => this.draw(width));
  }

  get shown() {
    return this.series.filter((each) => !this.hidden.has(each.label) && each.points.length);
  }

  toggle(hidden) {
    this.hidden = hidden;
    if (this.width) this.draw(this.width);
  }

  scales() {
    const all = this.shown.flatMap((each) => each.points);
    const xs = all.map((point) => point[0]), ys = all.map((point) => point[1]);
    const low = this.y.zero === false ? Math.min(...ys) : Math.min(0, ...ys);
    const high = Math.max(...ys), room = (high - low || Math.abs(high) || 1) * 0.06;
    this.x0 = Math.min(...xs);
    this.x1 = Math.max(...xs);
    if (this.x1 === this.x0) [this.x0, this.x1] = [this.x0 - 0.5, this.x1 + 0.5];
    this.y0 = low === 0 ? 0 : low - room;
    this.y1 = high + room;
  }

  px = (value) => LEFT + ((value - this.x0) / (this.x1 - this.x0)) * (this.width - LEFT - RIGHT);
  py = (value) => this.height - BOTTOM - ((value - this.y0) / (this.y1 - this.y0)) * (this.height - TOP - BOTTOM);

  draw(width) {
    this.width = width;
    const about = `${this.name}: ${this.series.map((each) => each.label).join(", ")}`;
    const svg = el("svg", {
      viewBox: `0 0 ${width} ${this.height}`, height: this.height, tabindex: 0, role: "img", "aria-label": about,
      onpointermove: (event) => this.point(event), onpointerdown: (event) => this.point(event),
      onpointerleave: () => this.leave(), onblur: () => this.leave(),
      onfocus: () => svg.matches(":focus-visible") && this.show(this.at ?? this.middle()),
      onkeydown: (event) => this.key(event),
    });
    this.svg = svg;
    if (this.shown.length) {
      this.scales();
      this.axes(svg, width);
      for (const each of this.shown) this.curve(svg, each);
    }
    this.over = el("g", {});
    svg.append(this.over);
    this.box.replaceChildren(svg);
  }

  axes(svg, width) {
    const bottom = this.height - BOTTOM;
    for (const value of ticks(this.y0, this.y1, 5, this.y)) {
      const y = this.py(value);
      svg.append(el("line", { class: value ? "grid" : "axis", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
      svg.append(el("text", { x: LEFT - 9, y: y + 4, "text-anchor": "end" }, this.y.format(value)));
    }
    svg.append(el("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: bottom, y2: bottom }));
    if (this.x.bands) return this.bands(svg, bottom);
    for (const value of ticks(this.x0, this.x1, Math.min(8, width / 90), this.x)) {
      svg.append(el("text", { x: this.px(value), y: bottom + 17, "text-anchor": "middle" }, this.x.format(value)));
    }
    svg.append(el("text", { x: width - RIGHT, y: this.height - 3, "text-anchor": "end" }, this.x.name));
  }

  /** Named parts of x, a line between each two. */
  bands(svg, bottom) {
    let from = this.px(this.x0);
    for (const [name, end] of this.x.bands) {
      const to = this.px(Math.min(end, this.x1)), narrow = to - from < 60;
      const place = narrow ? { x: to, "text-anchor": "end" } : { x: (from + to) / 2, "text-anchor": "middle" };
      svg.append(el("text", { ...place, y: bottom + (narrow ? 33 : 17) }, name));
      if (end < this.x1) svg.append(el("line", { class: "axis", x1: to, x2: to, y1: TOP, y2: bottom + 6 }));
      from = to;
    }
  }

  curve(svg, each) {
    const style = `--c:${each.colour}`;
    if (each.faint) svg.append(el("path", { class: "raw", style, d: this.path(each.faint) }));
    svg.append(el("path", { class: each.dashed ? "curve dashed" : "curve", style, d: this.path(each.points), "data-label": each.label }));
    const alone = each.points.length < 3 ? each.points : [];
    for (const [x, y] of alone) svg.append(el("circle", { class: "dot", style, cx: this.px(x), cy: this.py(y), r: 3.5 }));
  }

  path(points) {
    let before = null;
    return points
      .map(([x, y]) => {
        const to = `${this.px(x).toFixed(1)},${this.py(y).toFixed(1)}`;
        const corner = this.stepped && before !== null ? `L${this.px(x).toFixed(1)},${this.py(before).toFixed(1)}` : "";
        const move = before === null ? `M${to}` : `${corner}L${to}`;
        before = y;
        return move;
      })
      .join("");
  }

  /** The value of a curve at x: the last one before it, or the nearest one. */
  value(each, x) {
    const points = each.points;
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (points[middle][0] <= x) low = middle;
      else high = middle - 1;
    }
    const next = points[low + 1];
    if (!this.stepped && next && next[0] - x < x - points[low][0]) return next[1];
    return points[low][1];
  }

  middle() {
    const points = this.shown[0]?.points ?? [[0, 0]];
    return points.reduce((best, point) => (point[1] > best[1] ? point : best))[0];
  }

  point(event) {
    const box = this.svg.getBoundingClientRect();
    const part = (event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT);
    this.show(this.x0 + Math.max(0, Math.min(1, part)) * (this.x1 - this.x0), event.clientY);
  }

  key(event) {
    const step = (this.x1 - this.x0) / 60, at = this.at ?? this.middle();
    const to = { ArrowLeft: at - step, ArrowRight: at + step, Home: this.x0, End: this.x1 }[event.key];
    if (event.key === "Escape") this.leave();
    if (to === undefined) return;
    event.preventDefault();
    this.show(Math.max(this.x0, Math.min(this.x1, to)));
  }

  show(x, clientY = null) {
    if (!this.shown.length) return;
    this.at = x;
    const within = this.shown.filter((each) => x <= each.points.at(-1)[0] + 1e-9);
    const found = within.map((each) => ({ ...each, y: this.value(each, x) })).sort((a, b) => b.y - a.y);
    const place = this.px(x);
    this.over.replaceChildren(
      el("line", { class: "cursor", x1: place, x2: place, y1: TOP, y2: this.height - BOTTOM }),
      ...found.map((each) => el("circle", { class: "dot", style: `--c:${each.colour}`, cx: place, cy: this.py(each.y), r: 4 })),
    );
    const box = this.svg.getBoundingClientRect();
    const lines = found.map((each) => ({ ...each, name: each.label, value: (this.y.tip ?? this.y.format)(each.y) }));
    showTip(box.left + place, clientY ?? box.top + TOP, this.title(x), lines);
  }

  leave() {
    this.over.replaceChildren();
    hideTip();
  }
}
