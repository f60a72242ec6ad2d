// What every page does in the browser. Without it everything still works: nothing here is the only way to anything.

import { start } from "./live.js";
import { startKeys } from "./keys.js";
import { startSelection } from "./selection.js";

// Times in the viewer's zone; the title keeps UTC.
const zoned = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
function writeTimes(root) {
  for (const element of root.querySelectorAll("time:not(.ago)")) {
    const at = new Date(element.dateTime);
    if (!Number.isNaN(at.getTime())) element.textContent = zoned.format(at);
  }
}

// A preview or an answer that was sent once is not sent twice by a second press.
document.addEventListener("submit", (event) => {
  const form = event.target;
  if (form.method !== "post") return;
  if (form.dataset.sent) event.preventDefault();
  form.dataset.sent = "yes";
  setTimeout(() => delete form.dataset.sent, 5000);
});

writeTimes(document);
document.addEventListener("htmx:after:swap", () => writeTimes(document));
// The part that says "done" is not in the address any more when the page is loaded again.
if (new URLSearchParams(location.search).has("done")) {
  const address = new URL(location.href);
  address.searchParams.delete("done");
  history.replaceState(null, "", address);
}
start();
startKeys();
startSelection();
