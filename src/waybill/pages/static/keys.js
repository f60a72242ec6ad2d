// Keys: / finds, g then a letter goes to a page, j and k walk the rows of a table, x ticks one, Enter opens it.

const PLACES = { h: "/", f: "/failures", w: "/waiting", a: "/admin" };
let wasG = false;

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey || event.target.matches("input, textarea, select, [contenteditable]")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (wasG && PLACES[event.key]) location.href = PLACES[event.key];
    wasG = event.key === "g";
    if (event.key === "/") {
      const box = document.querySelector("input[type=search]");
      if (box) {
        event.preventDefault();
        box.focus();
        box.select();
      }
    } else if (event.key === "j" || event.key === "k") {
      walk(event.key === "j" ? 1 : -1);
    } else if (event.key === "x") {
      document.querySelector("tr.here input[type=checkbox]")?.click();
    } else if (event.key === "Enter" && document.activeElement === document.body) {
      document.querySelector("tr.here a")?.click();
    }
  });
}

function walk(step) {
  const rows = [...document.querySelectorAll("table.rows tbody tr")];
  if (!rows.length) return;
  const at = rows.findIndex((row) => row.classList.contains("here"));
  const next = rows[Math.min(rows.length - 1, Math.max(0, at + step))];
  rows[at]?.classList.remove("here");
  next.classList.add("here");
  next.scrollIntoView({ block: "nearest" });
}
