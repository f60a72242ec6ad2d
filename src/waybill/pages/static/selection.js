// The selection of a list: kept from page to page of the same list, counted, and sent with the form.

export function startSelection() {
  const form = document.getElementById("selection");
  const all = document.getElementById("tick-all");
  if (!form || !all) return;
  const key = `waybill selection ${form.elements.kind.value} ${form.elements.filters.value}`;
  const boxes = [...form.querySelectorAll("tbody input[name=id]")];
  const chosen = new Set(JSON.parse(sessionStorage.getItem(key) ?? "[]"));
  const count = document.getElementById("selected-count");

  function show() {
    for (const box of boxes) box.checked = chosen.has(box.value);
    all.checked = boxes.length > 0 && boxes.every((box) => box.checked);
    all.indeterminate = !all.checked && boxes.some((box) => box.checked);
    count.textContent = chosen.size ? `${chosen.size} selected` : "the selected";
    sessionStorage.setItem(key, JSON.stringify([...chosen]));
  }

  for (const box of boxes)
    box.addEventListener("change", () => {
      box.checked ? chosen.add(box.value) : chosen.delete(box.value);
      show();
    });
  all.addEventListener("change", () => {
    for (const box of boxes) all.checked ? chosen.add(box.value) : chosen.delete(box.value);
    show();
  });
  form.addEventListener("submit", () => {
    const here = new Set(boxes.map((box) => box.value));
    for (const id of chosen) {
      if (here.has(id)) continue;
      const field = document.createElement("input");
      field.type = "hidden";
      field.name = "id";
      field.value = id;
      form.append(field);
    }
    sessionStorage.removeItem(key);
  });
  show();
}
