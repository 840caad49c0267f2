// Bytes of modules or ops: grey as PyTorch keeps them, coloured as they are kept now.

const MOST = 24;

/** shares [[name, raw bytes, stored bytes]…]; the largest ones, and the others in one bar. */
function bars(box, shares, colour, label) {
  const sorted = [...shares].sort((a, b) => b[1] - a[1] || b[2] - a[2]);
  const rest = sorted.length > MOST + 1 ? sorted.slice(MOST) : [];
  const shown = sorted.slice(0, sorted.length - rest.length);
  const sum = (k) => rest.reduce((total, share) => total + share[k], 0);
  const most = Math.max(...shown.map((share) => Math.max(share[1], share[2])), 1);
  if (rest.length) shown.push([`${rest.length} others`, sum(1), sum(2)]);
  box.style.setProperty("--c", colour);
  box.replaceChildren(...shown.map((share) => bar(share, most, colour, label)));
}

function bar([name, raw, stored], most, colour, label) {
  const part = (value) => `width:${Math.min(100, (100 * value) / most).toFixed(2)}%`; // others may be more
  const lines = [
    { colour: "var(--ghost)", name: "plain", value: bytes(raw) },
    { colour, name: label, value: bytes(stored) },
    { name: "ratio", value: stored ? times(raw / stored) : "–" },
  ];
  const show = (event) => {
    const place = made.getBoundingClientRect();
    showTip(event.clientX ?? place.left + place.width / 2, event.clientY ?? place.bottom, name, lines);
  };
  const made = el(
    "div",
    { class: "bar", tabindex: 0, onpointermove: show, onpointerdown: show, onfocus: () => made.matches(":focus-visible") && show({}), onpointerleave: hideTip, onblur: hideTip },
    el("span", { class: "what" }, name),
    el("span", { class: "track" }, el("i", { class: "plain", style: part(raw) }), el("i", { class: "kept", style: part(stored) })),
    el("span", { class: "numbers" }, raw === stored ? bytes(raw, 1) : `${bytes(raw, 1)} → ${bytes(stored, 1)}`),
  );
  return made;
}
