// Pictures along the model: one thin line a tensor or a node, in execution order, drawn as a few paths.
"use strict";
function buildStrip(box, { height, count, lines, ticks, zones, read, go, marks = [] }) {
  const picture = draw("svg", { height: height + 26, "aria-hidden": "true" });
  box.setAttribute("aria-label", box.getAttribute("aria-label") + `: ${count.toLocaleString("en-US")} in all; arrow keys move, Enter goes to the node`);
  if (zones) for (const [key, , title, start, end] of DATA.zones) {
    const area = { x: 0, y: pc(0), width: "100%" };
    const top = (1 - end) * height, high = (end - start) * height;
    picture.append(draw("rect", { ...area, class: `zone zone-${key}`, y: top, height: high }));
    if (key !== "normal") picture.append(draw("rect", { ...area, fill: `url(#pattern-${key})`, y: top, height: high }));
    picture.append(draw("text", { class: "zone-name", x: "100%", dx: -6, y: top + 13, "text-anchor": "end" }, title));
  }
  for (const [y, text] of ticks) {
    picture.append(draw("line", { class: "grid", x1: 0, x2: "100%", y1: y * height, y2: y * height }));
    picture.append(draw("text", { class: "tick", x: -8, y: y * height, dy: 4, "text-anchor": "end" }, text));
  }
  const inner = draw("svg", { width: "100%", height, viewBox: `0 0 ${Math.max(count, 1)} ${height}`, preserveAspectRatio: "none" });
  for (const [kind, path] of lines) inner.append(draw("path", { class: `thin ${kind}`, d: path, "vector-effect": "non-scaling-stroke" }));
  const cursor = draw("line", { class: "cursor", y1: 0, y2: height, x1: -1, x2: -1, "vector-effect": "non-scaling-stroke", visibility: "hidden" });
  inner.append(cursor);
  picture.append(inner, ...marks, draw("text", { class: "tick", x: 0, y: height + 18 }, "inputs"), draw("text", { class: "tick", x: "100%", y: height + 18, "text-anchor": "end" }, "outputs"));
  box.append(picture);
  let at = -1;
  function show(index, x, y) {
    at = Math.min(Math.max(index, 0), count - 1);
    cursor.setAttribute("x1", at + 0.5);
    cursor.setAttribute("x2", at + 0.5);
    cursor.setAttribute("visibility", "visible");
    const area = inner.getBoundingClientRect();
    showHover(read(at), x ?? area.left + (at + 0.5) / count * area.width, y ?? area.top + 20);
  }
  const leave = () => { cursor.setAttribute("visibility", "hidden"); hideHover(); };
  box.addEventListener("pointermove", (event) => {
    const area = inner.getBoundingClientRect();
    if (event.clientX < area.left || event.clientX > area.right) return leave();
    show(Math.floor((event.clientX - area.left) / area.width * count), event.clientX, event.clientY);
  }, { passive: true });
  box.addEventListener("pointerleave", leave);
  box.addEventListener("blur", leave);
  box.addEventListener("click", () => { if (at >= 0) go(at); });
  box.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, PageDown: 25, PageUp: -25 }[event.key];
    if (step) { event.preventDefault(); show(at + step); }
    else if (event.key === "Home" || event.key === "End") { event.preventDefault(); show(event.key === "Home" ? 0 : count - 1); }
    else if (event.key === "Enter" && at >= 0) go(at);
  });
}

const STRIPS = {
  shares(box) {
    const height = 190, low = -6, count = DATA.given, top = 22, room = height - top;
    const view = Number(box.dataset.view), own = view ? new Map(DATA.by_output[view - 1]) : null;
    const drawn = own ? DATA.shares.filter((r) => own.has(r[0]) || r[5]).map((r) => [...r.slice(0, 3), own.get(r[0]) ?? 0, ...r.slice(4)]) : DATA.shares;
    const at = new Map(drawn.map((r) => [r[0], r]));
    const paths = { fp16: "", fp32: "", repaired: "" }, dots = [], breaks = [];
    for (const [index, , , share, state, broken] of drawn) {
      const key = DATA.states[state][1], line = key === "bf16" || key === "fp32" ? "fp32" : key === "repaired" ? key : "fp16";
      const part = (Math.log10(Math.max(numeric(share), 10 ** low)) - low) / -low, y = top + (1 - part) * room;
      if (part > 0) paths[line] += `M${index + 0.5} ${height}V${y.toFixed(1)}`;
      if (part > 0 && line === "repaired") dots.push([index, y]);
      if (broken) breaks.push(index);
    }
    buildStrip(box, {
      height, count, ticks: [[top / height, "100%"], ...[-2, -4, -6].map((e) => [(top + (e / low) * room) / height, e === low ? "less" : number(10 ** (e + 2)) + "%"])],
      lines: Object.entries(paths).filter(([, path]) => path).map(([key, path]) => [`share-line-${key}`, path]),
      marks: [
        ...dots.map(([index, y]) => draw("svg", { x: pc((index + 0.5) / count), y, overflow: "visible" }, draw("circle", { class: "share-dot", r: 2.6 }))),
        ...breaks.map((index) => draw("svg", { x: pc((index + 0.5) / count), y: 8, overflow: "visible" }, draw("path", { class: "break-mark", d: "M-4.5 -4.5 L4.5 4.5 M4.5 -4.5 L-4.5 4.5" }))),
      ],
      read: (i) => {
        const r = at.get(i);
        if (!r) return "error too small to draw";
        return `${brief(NAMES[r[1]], 90)}\n${NAMES[r[2]]}: ${percent(numeric(r[3]))} of the error${r[5] ? "; breaks in FP16" : ""}\n${DATA.states[r[4]][2]}`;
      },
      go: (i) => { const r = at.get(i); if (r && r[6] >= 0) openGraph(r[6], true); },
    });
  },
  ranges(box) {
    const height = 240, rows = DATA.tensors, paths = { normal: "", sub: "", lost: "", over: "", nonfinite: "" };
    rows.forEach((r, i) => {
      const most = numeric(r[T.most]);
      if (!(most > 0)) return;
      const top = (1 - place(most)) * height, end = Math.max((1 - place(r[T.least] || most)) * height, top + 2);
      paths[ZONES[r[T.zone]]] += `M${i + 0.5} ${top.toFixed(1)}V${end.toFixed(1)}`;
    });
    buildStrip(box, {
      height, count: rows.length, zones: true,
      lines: Object.entries(paths).filter(([, path]) => path).map(([key, path]) => [`zone-line-${key}`, path]),
      ticks: DATA.ticks.map(([x, text]) => [1 - x, text.replace("-", "−")]),
      read: (i) => {
        const r = rows[i];
        return `${brief(NAMES[r[T.name]], 90)}\n${opOf(r[T.node])}: ${number(r[T.min])} … ${number(r[T.max])}\n${shares(r)}`;
      },
      go: (i) => { if (rows[i][T.node] >= 0) openGraph(rows[i][T.node], true); },
    });
  },
  errors(box) {
    const height = 200, count = DATA.graph.nodes.length, low = -9, high = 1, found = new Map(DATA.errors);
    let path = "";
    for (const [node, error] of DATA.errors) {
      const share = (Math.log10(Math.max(numeric(error), 10 ** low)) - low) / (high - low);
      path += `M${node + 0.5} ${height}V${((1 - Math.min(share, 1)) * height).toFixed(1)}`;
    }
    const ticks = [-8, -6, -4, -2, 0].map((e) => [1 - (e - low) / (high - low), number(10 ** e)]);
    buildStrip(box, {
      height, count, ticks, lines: [["line-error", path]],
      read: (i) => `${brief(nodeName(i), 90)}\n${opOf(i)}: ${found.has(i) ? "relative error " + number(found.get(i)) : "no error of its own"}`,
      go: (i) => openGraph(i, true),
    });
  },
};
const views = document.querySelectorAll(".along-view"), chosenView = document.getElementById("along-view");
if (chosenView) chosenView.addEventListener("change", () => views.forEach((each, i) => { each.hidden = i !== Number(chosenView.value); }));
for (const box of document.querySelectorAll("[data-strip]")) buildWhenNear(box, () => STRIPS[box.dataset.strip](box));
