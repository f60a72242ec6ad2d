// Follows a job that runs: its latest outputs, its errors and its counts; at the end the page is loaded again.
//
//   <section id="tail" data-events="/api/v1/compute/ACCOUNT/jobs/ID/events" data-objects="/compute/objects?at=">

const SHOWN = 20;
const tail = document.getElementById("tail");

if (tail && tail.dataset.events) {
  const list = tail.querySelector("ol");
  const errors = document.getElementById("new-errors");
  const source = new EventSource(tail.dataset.events);
  let failed = 0;
  source.addEventListener("output", ({ data }) => {
    for (const key of JSON.parse(data).keys.slice(-SHOWN)) {
      const known = [...list.querySelectorAll("a")].some((each) => each.textContent === key);
      if (known) continue;
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.className = "mono";
      link.href = tail.dataset.objects + encodeURIComponent(key);
      link.textContent = key;
      item.append(link);
      list.append(item);
      while (list.children.length > SHOWN) list.firstElementChild.remove();
    }
  });
  source.addEventListener("error", (event) => {
    if (!event.data || !errors) return; // a lost connection: the browser opens it again
    failed += 1;
    errors.hidden = false;
    errors.querySelector("b").textContent = failed;
  });
  source.addEventListener("progress", ({ data }) => {
    const { stats } = JSON.parse(data);
    for (const each of document.querySelectorAll("[data-stat]")) each.textContent = stats[each.dataset.stat];
    const bar = document.querySelector("progress");
    if (bar && stats.tasks) bar.value = stats.tasksDone / stats.tasks;
  });
  source.addEventListener("done", () => {
    source.close();
    location.reload();
  });
  addEventListener("pagehide", () => source.close());
}
