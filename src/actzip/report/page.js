// The page: from the JSON block to cards, table and charts. A part without data is not there.

const found = JSON.parse(document.getElementById("data").textContent);
const { about, rows, methods } = found;
const look = Object.fromEntries(methods.map((method) => [method.label, method]));
const colour = (label) => look[label]?.colour ?? "var(--soft)";
const isDashed = (label) => look[label]?.dashed ?? false;
const done = rows.filter((row) => row.metric !== null);
const plain = done.find((row) => row.label === "plain");
const charts = [];

const lower = about.better === "lower";
const metric = (value, digits = 2) => (lower ? value.toFixed(digits + 1) : percent(value, digits));
const styled = (series) => series.map((each) => ({ ...each, colour: colour(each.label), dashed: isDashed(each.label) }));
const least = (list, key) => list.filter((row) => row[key] !== null).sort((a, b) => a[key] - b[key])[0];

// -- head ---------------------------------------------------------------------------------

function header() {
  const themes = ["auto", "light", "dark"];
  const read = () => { try { return localStorage.getItem("actzip-theme"); } catch { return null; } };
  let theme = themes.includes(read()) ? read() : "auto";
  const button = el("button", { id: "theme", type: "button", onclick: () => set(themes[(themes.indexOf(theme) + 1) % 3]) });
  const set = (to) => {
    theme = to;
    document.documentElement.dataset.theme = to;
    button.textContent = { auto: "◐ auto", light: "○ light", dark: "● dark" }[to];
    button.setAttribute("aria-label", `Colours: ${to}`);
    try { localStorage.setItem("actzip-theme", to); } catch { /* a page from disk may have no storage */ }
  };
  set(theme);
  const words = el("div", {}, el("p", { class: "brand" }, "actzip"), el("h1", {}, about.title), el("p", { class: "soft" }, about.facts.join(" · ")),
    about.lead ? el("p", { class: "lead" }, about.lead) : null);
  return el("header", {}, words, button);
}

function card(name, value, more, label) {
  return el("div", { class: "card", style: label ? `--c:${colour(label)}` : null }, el("div", { class: "name" }, name), el("div", { class: "value" }, value), el("div", { class: "more" }, ...more));
}

function cards() {
  const who = (row) => el("b", {}, row.label);
  const less = (row, key) => plain && plain[key] && row !== plain ? ` · ${percent(row[key] / plain[key], 0)} of plain's` : "";
  const made = (found.cards ?? []).map((each) => card(each.name, each.value, [each.more], each.label));
  if (done.length === 1) {
    const row = done[0];
    made.push(card(about.metric, metric(row.metric), [who(row)], row.label));
    made.push(card("Kept for backward", bytes(row.stored_bytes), [`${times(row.ratio)} smaller than ${bytes(row.raw_bytes)}`], row.label));
    made.push(card("Live peak", bytes(row.live_peak), ["tensors of one step"], row.label));
    if (row.resident_peak !== null) made.push(card("Resident peak", bytes(row.resident_peak), ["growth of the process"], row.label));
    made.push(card("Step", duration(1e3 * row.step_seconds), ["median"], row.label));
  } else if (done.length) {
    const small = least(done, "stored_bytes"), live = least(done, "live_peak"), resident = least(done, "resident_peak");
    made.push(card("Least kept for backward", times(small.ratio), [who(small), ` · ${bytes(small.stored_bytes)} of ${bytes(small.raw_bytes)}`], small.label));
    made.push(card("Lowest live peak", bytes(live.live_peak), [who(live), less(live, "live_peak")], live.label));
    if (resident) made.push(card("Lowest resident peak", bytes(resident.resident_peak), [who(resident), less(resident, "resident_peak")], resident.label));
    const lossy = done.filter((row) => row !== plain).sort((a, b) => (lower ? a.metric - b.metric : b.metric - a.metric));
    if (plain && lossy.length) {
      const range = [lossy.at(-1), lossy[0]].map((row) => metric(row.metric, 1)).join(" to ");
      made.push(card(`${about.metric}, plain`, metric(plain.metric), [`the others: ${range}`], "plain"));
    }
    const quick = least(done.filter((row) => row.ratio > 1.5), "slower");
    if (quick) made.push(card("Least extra time", times(quick.slower), [who(quick), ` · ${times(quick.ratio)} smaller`], quick.label));
  }
  return el("div", { class: "cards" }, ...made);
}

function legend() {
  const hidden = new Set();
  const button = (label) => {
    const made = el("button", { type: "button", "aria-pressed": "true", style: `--c:${colour(label)}`, onclick: () => flip(label, made) },
      el("span", { class: isDashed(label) ? "key dashed" : "key" }), label);
    return made;
  };
  const flip = (label, made) => {
    if (!hidden.delete(label)) hidden.add(label);
    made.setAttribute("aria-pressed", String(!hidden.has(label)));
    charts.forEach((chart) => chart.toggle(hidden));
  };
  const drawn = methods.filter((method) => found.memory.some((series) => series.label === method.label));
  return drawn.length > 1 ? el("div", { class: "legend", role: "group", "aria-label": "Methods shown in the charts" }, ...drawn.map((method) => button(method.label))) : null;
}

// -- sections -----------------------------------------------------------------------------

function section(id, title, note, ...parts) {
  const [extra, ...rest] = parts;
  return el("section", { id }, el("div", { class: "head" }, el("div", {}, el("h2", {}, title), note ? el("p", { class: "note" }, note) : null), extra), ...rest);
}

const COLUMNS = [
  ["saved", "stored_bytes", (value) => bytes(value), "low"], ["ratio", "ratio", times, "high"],
  ["live peak", "live_peak", (value) => bytes(value), "low"], ["resident peak", "resident_peak", (value) => bytes(value), "low"],
  ["step", "step_seconds", (value) => duration(1e3 * value), "low"], ["× plain", "slower", times, "low"],
];

function table() {
  if (!rows.length) return null;
  const spread = (row) => (row.spread === null ? "" : ` ± ${lower ? row.spread.toFixed(3) : (100 * row.spread).toFixed(2)}`);
  const columns = [[about.metric, "metric", (value, row) => metric(value) + spread(row), lower ? "low" : "high"], ...COLUMNS];
  const best = columns.map(([, key, , wanted]) => {
    const values = done.map((row) => row[key]).filter((value) => value !== null);
    return done.length < 2 || !values.length ? null : wanted === "low" ? Math.min(...values) : Math.max(...values);
  });
  const line = (row) => el("tr", { style: `--c:${colour(row.label)}` },
    el("td", {}, el("span", { class: isDashed(row.label) ? "key dashed" : "key" }), row.label, row.seeds.length > 1 ? el("span", { class: "soft" }, ` × ${row.seeds.length}`) : null),
    ...(row.metric === null ? [el("td", { class: "failed", colspan: columns.length }, row.error)] : columns.map(([, key, show], i) =>
      el("td", { class: row[key] !== null && row[key] === best[i] ? "best" : "" }, row[key] === null ? "–" : show(row[key], row)))));
  const head = el("tr", {}, el("th", {}, "method"), ...columns.map(([name]) => el("th", {}, name)));
  const note = about.note_table;
  return section("table", rows.length > 1 ? "Methods side by side" : "The run", note, null, el("div", { class: "scroll" }, el("table", {}, el("thead", {}, head), el("tbody", {}, ...rows.map(line)))));
}

function lines(id, title, note, series, options) {
  if (!series.length) return null;
  const box = el("div", {});
  const made = section(id, title, note, null, box);
  charts.push(new Lines(box, { name: title, series: styled(series), ...options }));
  return made;
}

/** Where in a step x is, in words. */
function within(x) {
  let from = 0;
  for (const [name, end] of found.phases) {
    if (x <= end) return `${name}, ${percent((x - from) / (end - from), 0)} done`;
    from = end;
  }
  return "the end";
}

/** A section with one choice: `show(box, label)` draws the method that is chosen. */
function chosen(id, title, note, labels, show) {
  if (!labels.length) return null;
  const box = el("div", {});
  const small = (label) => !isDashed(label) && !(rows.find((row) => row.label === label)?.ratio < 1.5);
  const first = labels.find(small) ?? labels.at(-1);
  const select = el("select", { "aria-label": `Method: ${title}`, onchange: () => show(box, select.value) }, ...labels.map((label) => el("option", { value: label }, label)));
  select.value = first;
  show(box, first);
  return section(id, title, note, labels.length > 1 ? select : el("span", { class: "soft" }, first), box);
}

function sites(box, label) {
  const { last, kinds } = found.sites[label];
  box.replaceChildren(...Object.entries(kinds).map(([kind, list]) => {
    const inner = el("div", { style: "margin-top:8px" });
    new Sites(inner, { rows: list, kind, last, colour: colour(label) });
    return el("div", {}, el("p", { class: "note" }, kind === "bits" ? "bits per element" : "largest error of an element"), inner);
  }));
}

function shares(of) {
  return (box, label) => {
    box.setAttribute("class", "bars");
    bars(box, of[label], colour(label), label);
  };
}

const root = document.querySelector("main");
const each = { whole: true, format: String };
root.append(...[
  header(),
  legend(),
  lines("memory", "Memory over one step", about.note_memory, found.memory, {
    stepped: true, height: 320, x: { bands: found.phases }, y: { format: (value) => bytes(value, 0), tip: bytes, binary: true },
    title: within,
  }),
  cards(),
  table(),
  chosen("modules", "Where the bytes are", about.note_modules, Object.keys(found.modules), shares(found.modules)),
  chosen("ops", "The same by op", null, Object.keys(found.ops), shares(found.ops)),
  el("div", { class: "pair" }, ...[
    lines("loss", "Training loss", null, found.loss, { x: { ...each, name: "step" }, y: { format: figures }, title: (x) => `step ${Math.round(x)}` }),
    lines("metric", `Test ${about.metric}`, null, found.tests, { x: { ...each, name: "epoch" }, y: { format: (value) => metric(value, 0), tip: (value) => metric(value), zero: false }, title: (x) => `epoch ${Math.round(x)}` }),
  ].filter(Boolean)),
  chosen("sites", "Precision of each stored tensor", about.note_sites, Object.keys(found.sites), sites),
  el("footer", {}, about.footer),
].filter(Boolean));
document.body.append(tip);
addEventListener("scroll", () => {
  const focused = document.activeElement;
  if (!tip.classList.contains("on")) return;
  if (focused?.matches("svg:focus-visible, .bar:focus-visible")) focused.dispatchEvent(new Event("focus"));
  else hideTip();
}, { passive: true });
addEventListener("keydown", (event) => event.key === "Escape" && hideTip());
