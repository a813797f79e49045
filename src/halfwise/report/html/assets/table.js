// A long table, a page of rows at a time: searched, filtered and sorted here, so that thousands of rows stay light.
"use strict";
const PAGE = 25;

/* columns: {title, cell(row), value(row) to sort by, text(row) to search, num, pic, wordy, head}; filters: {title, test(row)} */
function buildTable(box, rows, columns, { filters = [], sort = null, noun = "row" } = {}) {
  const head = Math.max(columns.findIndex((column) => column.head), 0);
  const state = { query: "", filter: null, sort, first: 0 };
  const label = box.dataset.label;
  const lower = rows.map((row) => columns.filter((c) => c.text).map((c) => c.text(row)).join("\n").toLowerCase());
  const search = make("input", { type: "search", placeholder: box.dataset.placeholder, "aria-label": `Search: ${label}`, autocomplete: "off" });
  const choose = make("select", { "aria-label": `Filter: ${label}` }, make("option", { value: "" }, `all (${rows.length.toLocaleString("en-US")})`),
    ...filters.map((f, i) => make("option", { value: i }, `${f.title} (${rows.filter(f.test).length.toLocaleString("en-US")})`)));
  const body = make("tbody");
  const heads = columns.map((column, index) => {
    if (!column.value) return make("th", { scope: "col", class: column.pic ? "pic" : "" }, column.title);
    const button = make("button", { type: "button", class: "sort" }, column.title, make("span", { "aria-hidden": "true" }, " ↕"));
    button.addEventListener("click", () => {
      const same = state.sort && state.sort[0] === index;
      state.sort = [index, same ? -state.sort[1] : column.num ? -1 : 1];
      state.first = 0;
      show();
    });
    return make("th", { scope: "col", class: column.num ? "num" : "" }, button);
  });
  const count = make("span", { role: "status" });
  const back = make("button", { type: "button", class: "plain" }, "Previous");
  const on = make("button", { type: "button", class: "plain" }, "Next");
  const scroller = make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Table: ${label}` }, make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body));
  box.replaceChildren(
    make("div", { class: "table-tools" }, make("label", {}, "Search", search), filters.length ? make("label", {}, "Show", choose) : null),
    scroller,
    make("div", { class: "pager" }, back, on, count, csvButton(label, () => [columns.map((c) => c.title), ...order.map((i) => columns.map((c) => c.csv?.(rows[i]) ?? c.value?.(rows[i]) ?? c.text?.(rows[i]) ?? ""))])),
  );
  let order = [];

  function pick() {
    const filter = state.filter === null ? null : filters[state.filter].test;
    order = [];
    for (let i = 0; i < rows.length; i++) {
      if (filter && !filter(rows[i])) continue;
      if (state.query && !lower[i].includes(state.query)) continue;
      order.push(i);
    }
    if (!state.sort) return;
    const [column, way] = state.sort, value = columns[column].value;
    const keys = new Map(order.map((i) => [i, value(rows[i])]));
    const compare = (a, b) => {
      const x = keys.get(a), y = keys.get(b);
      return way * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y) || a - b;
    };
    order.sort(compare);
  }

  function show() {
    pick();
    const last = Math.min(state.first + PAGE, order.length);
    body.replaceChildren(...order.slice(state.first, last).map((i) => make("tr", {}, ...columns.map((column, at) => {
      const content = column.cell(rows[i]);
      return make(at === head ? "th" : "td", { class: column.num ? "num" : column.pic ? "pic" : column.wordy ? "wordy" : "", scope: at === head ? "row" : null, "data-title": at === head ? null : column.title }, content);
    }))));
    if (!order.length) body.append(make("tr", {}, make("td", { colspan: columns.length, class: "quiet" }, `No ${noun} matches.`)));
    heads.forEach((head, index) => {
      const way = state.sort && state.sort[0] === index ? state.sort[1] : 0;
      if (way) head.setAttribute("aria-sort", way > 0 ? "ascending" : "descending"); else head.removeAttribute("aria-sort");
      const arrow = head.querySelector("button span");
      if (arrow) arrow.textContent = way > 0 ? " ↑" : way < 0 ? " ↓" : " ↕";
    });
    count.textContent = order.length ? `${(state.first + 1).toLocaleString("en-US")} to ${last.toLocaleString("en-US")} of ${plural(order.length, noun)}` : "";
    back.disabled = state.first === 0;
    on.disabled = last >= order.length;
    back.hidden = on.hidden = order.length <= PAGE;
  }

  let pending = 0;
  search.addEventListener("input", () => {
    clearTimeout(pending);
    pending = setTimeout(() => { state.query = search.value.toLowerCase(); state.first = 0; show(); }, 90);
  });
  choose.addEventListener("change", () => { state.filter = choose.value === "" ? null : Number(choose.value); state.first = 0; show(); });
  const turn = (by) => { state.first = Math.max(0, state.first + by); show(); scroller.scrollIntoView({ block: "nearest" }); };
  back.addEventListener("click", () => turn(-PAGE));
  on.addEventListener("click", () => turn(PAGE));
  show();
}
