// Every table as a CSV file: what it shows at the moment, all pages of it.
"use strict";
// A spreadsheet takes text that begins like a formula for one; a quote in front keeps it text.
function csvCell(value) {
  const text = typeof value === "number" ? String(value) : String(value ?? "").replace(/^[=+\-@\t\r]/, "'$&");
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function csvButton(label, rows) {
  const button = make("button", { type: "button", class: "plain csv", "aria-label": `Save as CSV: ${label}` }, "CSV");
  button.addEventListener("click", () => {
    const text = rows().map((row) => row.map(csvCell).join(",") + "\r\n").join("");
    const url = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv;charset=utf-8" }));
    make("a", { href: url, download: `${label.toLowerCase().replace(/[^a-z0-9]+/g, "-")}.csv` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
  return button;
}

// Tables that stand in the page as they are; a name that is shortened there is whole in the file.
for (const box of document.querySelectorAll("main .scroll")) {
  const table = box.querySelector("table"), label = box.getAttribute("aria-label").replace("Table of ", "");
  const whole = (cell) => { const name = cell.querySelector("code[data-name]"); return name ? NAMES[name.dataset.name] : cell.querySelector("svg")?.getAttribute("aria-label") ?? cell.innerText.trim(); };
  box.after(make("p", { class: "pager" }, csvButton(label, () => [...table.rows].map((row) => [...row.cells].map(whole)))));
}
