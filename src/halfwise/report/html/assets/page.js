// The page's own behaviour: data, names, colours, copying, hovering, contents. Text from a model is only ever textContent.
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const NAMES = DATA.names;
const SHOWN = 72;

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") element.className = value;
    else if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (value !== null && value !== false) element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

function draw(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  element.append(...children);
  return element;
}

function brief(text, width = SHOWN) {
  if (text.length <= width) return text;
  const kept = width - 3, head = Math.floor(kept / 2);
  return text.slice(0, head) + "..." + text.slice(text.length - (kept - head));
}

// A long name may break after a slash, a dot or an underscore, not in the middle of a word.
function breakable(element, text) {
  element.replaceChildren(...text.split(/(?<=[/._:])/).slice(0, 400).flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
  if (element.textContent.length < text.length) element.append(text.slice(element.textContent.length));
}

function nameOf(index, width = SHOWN) {
  const text = NAMES[index];
  const code = make("code", { class: "name", "data-name": index, "data-width": width });
  breakable(code, brief(text, width));
  if (text.length <= width) return code;
  return make("span", {}, code, make("button", { type: "button", class: "more", "data-more": index, "aria-expanded": "false" }, "whole name"));
}

function number(value) {
  if (typeof value === "string") return { inf: "∞", "-inf": "−∞", nan: "NaN" }[value];
  if (value === 0) return "0";
  const size = Math.abs(value);
  let text;
  if (size >= 1e7 || size < 1e-3) {
    const [mantissa, exponent] = value.toExponential(2).split("e");
    text = mantissa.replace(/\.?0+$/, "") + "e" + Number(exponent);
  } else if (size >= 1000) text = Math.round(value).toLocaleString("en-US");
  else text = String(Number(value.toPrecision(3)));
  return text.replaceAll("-", "−");
}

function percent(share) {
  if (share === 0) return "–";
  if (share < 1e-4) return "<0.01%";
  if (share > 0.9999 && share < 1) return ">99.99%";
  return share >= 0.1 ? Math.round(share * 100) + "%" : Number((share * 100).toPrecision(2)) + "%";
}

const plural = (count, noun) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;

// What is far below the screen is built when it comes near, or before printing.
const waiting = new Map();
const watcher = "IntersectionObserver" in window ? new IntersectionObserver((seen) => {
  for (const entry of seen) if (entry.isIntersecting) buildNow(entry.target);
}, { rootMargin: "600px" }) : null;
function buildWhenNear(element, build) {
  waiting.set(element, build);
  if (watcher) watcher.observe(element); else buildNow(element);
}
function buildNow(element) {
  const build = waiting.get(element);
  if (!build) return;
  waiting.delete(element);
  if (watcher) watcher.unobserve(element);
  build();
}

// A jump lands where it points: what is above the place is built first, so that nothing grows while the page moves.
function settle(target) {
  for (const element of [...waiting.keys()]) if (element === target || target.contains(element) || element.compareDocumentPosition(target) & Node.DOCUMENT_POSITION_FOLLOWING) buildNow(element);
}
document.addEventListener("click", (event) => {
  const target = document.getElementById(event.target.closest?.('a[href^="#"]')?.hash.slice(1) ?? "");
  if (target) settle(target);
});
addEventListener("load", () => {
  const target = document.getElementById(location.hash.slice(1));
  if (target) { settle(target); target.scrollIntoView({ behavior: "instant" }); }
});

for (const code of document.querySelectorAll("code.name")) breakable(code, code.textContent);

document.addEventListener("click", (event) => {
  const button = event.target.closest("button.more[data-more]");
  if (!button) return;
  const code = button.parentElement.querySelector(`code[data-name="${button.dataset.more}"]`);
  const open = button.getAttribute("aria-expanded") !== "true";
  button.setAttribute("aria-expanded", String(open));
  button.textContent = open ? "shorten" : "whole name";
  breakable(code, open ? NAMES[button.dataset.more] : brief(NAMES[button.dataset.more], Number(code.dataset.width)));
});

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const code = button.parentElement.querySelector("code");
    let done = false;
    try {
      await navigator.clipboard.writeText(code.textContent);
      done = true;
    } catch {
      getSelection().selectAllChildren(code);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    button.classList.toggle("done", done);
    setTimeout(() => { button.textContent = "Copy"; button.classList.remove("done"); }, 1800);
  });
}

(function colours() {
  const button = document.getElementById("theme"), root = document.documentElement;
  const modes = ["", "light", "dark"], words = { "": "as the system", light: "light", dark: "dark" };
  const show = (mode) => {
    if (mode) root.dataset.theme = mode; else delete root.dataset.theme;
    button.querySelector("span").textContent = words[mode];
  };
  let stored = "";
  try { stored = localStorage.getItem("halfwise-colours") || ""; } catch { /* a page in a mail may not remember */ }
  show(modes.includes(stored) ? stored : "");
  button.addEventListener("click", () => {
    const next = modes[(modes.indexOf(root.dataset.theme || "") + 1) % modes.length];
    show(next);
    try { localStorage.setItem("halfwise-colours", next); } catch { /* the same */ }
  });
})();

const hover = document.getElementById("hover");
function showHover(text, x, y) {
  if (hover.textContent !== text) hover.textContent = text;
  hover.hidden = false;
  const box = hover.getBoundingClientRect();
  hover.style.transform = `translate(${Math.max(6, Math.min(x + 14, innerWidth - box.width - 6))}px, ${y + 20 + box.height > innerHeight ? y - box.height - 12 : y + 18}px)`;
}
function hideHover() { hover.hidden = true; }
document.addEventListener("pointermove", (event) => {
  const target = event.target.closest?.("[data-hover]");
  if (target) showHover(target.dataset.hover, event.clientX, event.clientY);
  else if (!event.target.closest?.(".strip")) hideHover();
}, { passive: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideHover(); });
addEventListener("scroll", hideHover, { passive: true });

(function contents() {
  if (!watcher) return;
  const links = new Map([...document.querySelectorAll("#contents a")].map((a) => [a.hash.slice(1), a]));
  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) seen[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    const first = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) if (id === first) link.setAttribute("aria-current", "true"); else link.removeAttribute("aria-current");
  }, { rootMargin: "-70px 0px -55% 0px" });
  for (const section of document.querySelectorAll("main > section")) observer.observe(section);
})();

addEventListener("beforeprint", () => {
  for (const element of [...waiting.keys()]) buildNow(element);
  for (const details of document.querySelectorAll("main details.legend-box")) details.open = true;
});
