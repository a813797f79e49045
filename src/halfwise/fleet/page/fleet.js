// The page of a fleet: rows, and what opens under them, are built when they are wanted. Names are only ever textContent.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const FIRST = 100;
const rows = document.getElementById("rows"), shown = document.getElementById("shown"), all = document.getElementById("all");
let most = FIRST;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null) element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function draw(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

const percent = (share) => (share === null ? "" : share > 0 && share < 0.001 ? "<0.1%" : (100 * share).toFixed(1) + "%");
const digits = (value) => (value === null ? "" : typeof value === "string" ? value : value === 0 ? "0" : value.toPrecision(3));

// The share of FP32 arithmetic (or FP32 nodes) over time; a run without an answer is a red dot on the line's height.
function spark(history) {
  const width = 120, height = 24, top = Math.max(0.01, ...history.map((point) => point[1] ?? 0));
  const x = (i) => (history.length < 2 ? width / 2 : 4 + (i * (width - 8)) / (history.length - 1));
  const y = (point) => height - 4 - ((point[1] ?? 0) / top) * (height - 8);
  const told = history.map((point) => `${point[0]}: ${point[3]}${point[1] === null ? "" : ", " + percent(point[1])}`).join("; ");
  const path = history.map((point, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(point).toFixed(1)}`).join("");
  const picture = draw("svg", { class: "spark", width, height, role: "img", "aria-label": told }, draw("path", { d: path }));
  history.forEach((point, i) => {
    if (point[3] !== "good" || i === history.length - 1)
      picture.append(draw("circle", { cx: x(i), cy: y(point), r: 2.6, class: point[3] === "good" ? "" : "bad" }));
  });
  return picture;
}

const STATES = { good: "good", "good, caution": "wary" };

function state(text, change) {
  const cell = make("td", {}, make("span", { class: "state " + (STATES[text] ?? "bad") }, text));
  if (change) cell.append(make("span", { class: "tag " + change }, change));
  return cell;
}

function jobs(model) {
  const head = ["Job", "State", "FP32 nodes", "FP32 arithmetic", "Error", "Seconds", "Over time"];
  const body = make("tbody");
  for (const job of model.jobs) {
    const name = make("td", {}, make("code", {}, job.title));
    if (job.report) name.append(" ", make("a", { href: job.report }, "report"));
    if (job.why) name.append(make("div", { class: "quiet" }, job.why));
    body.append(make("tr", {}, name, state(job.state, job.change),
      make("td", { class: "right" }, job.fp32 === null ? "" : `${job.fp32} of ${job.nodes}`),
      make("td", { class: "right" }, percent(job.share)), make("td", { class: "right" }, digits(job.error)),
      make("td", { class: "right" }, digits(job.seconds)), make("td", {}, spark(job.history))));
  }
  const titles = head.map((title, i) => make("th", { scope: "col", class: i > 1 && i < 6 ? "right" : "" }, title));
  return make("table", {}, make("thead", {}, make("tr", {}, ...titles)), body);
}

function row(model) {
  const worst = model.jobs[0];
  const button = make("button", { type: "button", class: "open", "aria-expanded": "false" }, model.name);
  const line = make("tr", {}, make("td", {}, button), state(worst.state, worst.change),
    make("td", { class: "right" }, worst.fp32 === null ? "" : `${worst.fp32} of ${worst.nodes}`),
    make("td", { class: "right" }, percent(worst.share)), make("td", { class: "right" }, digits(worst.error)),
    make("td", {}, spark(worst.history)));
  button.addEventListener("click", () => {
    const open = button.getAttribute("aria-expanded") === "true";
    button.setAttribute("aria-expanded", String(!open));
    if (open) line.nextSibling.remove();
    else line.after(make("tr", {}, make("td", { colspan: 6 }, jobs(model))));
  });
  return line;
}

function matches(model) {
  const wanted = document.getElementById("filter").value.toLowerCase(), kind = document.getElementById("state").value;
  if (wanted && !model.name.toLowerCase().includes(wanted)) return false;
  if (!kind) return true;
  if (kind === "good") return model.jobs.every((job) => job.state in STATES);
  if (kind === "not good") return model.jobs.some((job) => !(job.state in STATES));
  if (kind === "caution") return model.jobs.some((job) => STATES[job.state] === "wary");
  return model.jobs.some((job) => job.change === kind);
}

function fill() {
  const found = DATA.models.filter(matches);
  rows.replaceChildren(...found.slice(0, most).map(row));
  shown.textContent = `${Math.min(most, found.length)} of ${found.length} models`;
  all.hidden = found.length <= most;
}

const THEMES = [["as the system", null], ["light", "light"], ["dark", "dark"]];
let theme = 0;
document.getElementById("theme").addEventListener("click", () => {
  theme = (theme + 1) % THEMES.length;
  const [name, value] = THEMES[theme];
  if (value) document.documentElement.dataset.theme = value;
  else delete document.documentElement.dataset.theme;
  document.querySelector("#theme span").textContent = name;
});
document.getElementById("filter").addEventListener("input", () => { most = FIRST; fill(); });
document.getElementById("state").addEventListener("change", () => { most = FIRST; fill(); });
all.addEventListener("click", () => { most = Infinity; fill(); });
fill();
