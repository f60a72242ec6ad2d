// Makes a page live: numbers are written into its figures as they come, parts that show more are loaded again.
//
//   <b data-count="KIND STATE">12</b>                   the number of records of a kind in a state
//   <div data-refresh="counts:KIND sessions">           loaded again (htmx, on waybill:refresh) when one of these topics changes
//   <div data-progress="KIND ID"><progress><small>      the progress of a step: moved, with its rate and the time that is left
//
// Numbers change at most twice a second, parts once; nothing is loaded while somebody writes into the part. What changed between the
// rendering of the page and the first message would be missed: parts are loaded once when the stream has begun.

const NUMBERS_INTERVAL = 500;
const PARTS_INTERVAL = 1000;
const number = new Intl.NumberFormat("en");

const pendingCounts = new Map();
const changedTopics = new Set();
const seen = new Map(); // topic -> its first body: what the server's page shows already
let numbersTimer = null;
let partsTimer = null;

export function start() {
  const stream = document.body.dataset.live;
  if (!stream) return;
  if (window.SharedWorker) {
    const worker = new SharedWorker(document.body.dataset.worker, { name: "waybill" });
    const say = () => worker.port.postMessage({ visible: !document.hidden });
    worker.port.onmessage = ({ data }) => receive(data.event, data.data);
    worker.port.start();
    document.addEventListener("visibilitychange", say);
    addEventListener("pagehide", () => worker.port.postMessage({ gone: true }));
    addEventListener("pageshow", say);
    say();
  } else {
    listenAlone(stream);
  }
}

function listenAlone(stream) {
  let source = null;
  const openOrClose = () => {
    if (!document.hidden && source === null) {
      source = new EventSource(stream);
      for (const name of ["counts", "sessions", "holds", "store"])
        source.addEventListener(name, (event) => receive(name, JSON.parse(event.data)));
      source.onopen = () => receive("connection", { open: true });
      source.onerror = () => receive("connection", { open: false });
    } else if (document.hidden && source !== null) {
      source.close();
      source = null;
    }
  };
  document.addEventListener("visibilitychange", openOrClose);
  openOrClose();
}

function receive(event, data) {
  if (document.body.dataset.heard !== "yes") {
    document.body.dataset.heard = "yes"; // the first message has come: the page is live
    setTimeout(() => refreshWhere((part) => !topicsOf(part).includes("counts")), NUMBERS_INTERVAL); // the numbers of others come by themselves
  }
  if (event === "connection") return showConnection(data.open ? "" : "The connection to the server is lost. It is tried again by itself.");
  if (event === "store") return showConnection(data.available ? "" : "The store cannot be reached. This page shows what was true before, and goes on by itself.");
  const topic = event === "counts" ? `counts:${data.kind}` : event;
  const body = JSON.stringify(data);
  const isFirst = !seen.has(topic);
  if (seen.get(topic) === body) return;
  seen.set(topic, body);
  if (event === "counts") {
    pendingCounts.set(data.kind, data);
    numbersTimer ??= setTimeout(writeNumbers, NUMBERS_INTERVAL);
  }
  if (event === "sessions") showProgress(data);
  if (isFirst) return;
  changedTopics.add(topic);
  if (event === "counts") changedTopics.add("counts");
  partsTimer ??= setTimeout(refreshParts, PARTS_INTERVAL);
}

function showConnection(text) {
  const banner = document.getElementById("connection");
  banner.textContent = text;
  banner.hidden = !text;
}

function writeNumbers() {
  numbersTimer = null;
  for (const [kind, data] of pendingCounts) {
    for (const { state, count } of data.states) {
      for (const element of document.querySelectorAll(`[data-count="${CSS.escape(kind)} ${CSS.escape(state)}"]`)) {
        const text = number.format(count);
        if (element.textContent === text) continue;
        element.textContent = text;
        const box = element.closest(".state");
        if (!box) continue;
        box.classList.toggle("empty", count === 0);
        box.classList.add("moved");
        setTimeout(() => box.classList.remove("moved"), 1200);
      }
    }
    noteNewRows(data);
    noteFailed(data);
  }
  pendingCounts.clear();
}

// How many records have failed, in the head of every page.
const failedByState = new Map();
function noteFailed(data) {
  const badge = document.getElementById("failed-count");
  if (!badge) return;
  const states = new Set(badge.dataset.states.split("|"));
  for (const { state, count } of data.states) if (states.has(`${data.kind} ${state}`)) failedByState.set(`${data.kind} ${state}`, count);
  const total = [...failedByState.values()].reduce((sum, each) => sum + each, 0);
  badge.textContent = total ? number.format(total) : "";
}

// Rows never move by themselves: the list says that it has changed, and is loaded when somebody wants it.
let rowsAtFirst = null;
function noteNewRows(data) {
  const line = document.getElementById("new-rows");
  if (!line) return;
  const { kind, state } = line.dataset;
  if (kind === "*") {
    const known = (rowsAtFirst ??= new Map());
    if (!known.has(data.kind)) known.set(data.kind, JSON.stringify(data));
    else if (known.get(data.kind) !== JSON.stringify(data)) line.hidden = false;
    return;
  }
  if (kind !== data.kind) return;
  const now = state ? (data.states.find((each) => each.state === state)?.count ?? 0) : data.total;
  const body = JSON.stringify(data);
  const isFirst = rowsAtFirst === null;
  rowsAtFirst ??= body;
  const more = now - Number(line.dataset.shown); // what the server counted when it wrote the list
  if (more === 0 && (isFirst || rowsAtFirst === body)) return;
  line.firstElementChild.textContent = more > 0 ? `${number.format(more)} new: show` : "The list has changed: show";
  line.hidden = false;
}

const topicsOf = (part) => part.dataset.refresh.split(" ");

function refreshParts() {
  partsTimer = null;
  const topics = new Set(changedTopics);
  changedTopics.clear();
  refreshWhere((part) => topicsOf(part).some((topic) => topics.has(topic)));
}

function refreshWhere(isConcerned) {
  for (const part of document.querySelectorAll("[data-refresh]")) {
    if (!part.dataset.refresh || !isConcerned(part)) continue;
    if (part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) continue;
    htmx.trigger(part, "waybill:refresh");
  }
}

// The rate of a step is measured here, over the last half a minute: workers say how much is done, not how fast.
const samples = new Map(); // "KIND ID" -> [[milliseconds, done], ...]
function showProgress(data) {
  const now = performance.now();
  const seenNow = new Set();
  for (const session of data.sessions) {
    for (const { kind, id, progress } of session.steps) {
      const key = `${kind} ${id}`;
      seenNow.add(key);
      const known = samples.get(key) ?? [];
      if (known.length && known.at(-1)[1] > progress.done) known.length = 0; // it began again
      known.push([now, progress.done]);
      while (known.length > 2 && now - known[0][0] > 30000) known.shift();
      samples.set(key, known);
      for (const element of document.querySelectorAll(`[data-progress="${CSS.escape(key)}"]`)) writeProgress(element, progress, known);
    }
  }
  for (const key of samples.keys()) if (!seenNow.has(key)) samples.delete(key);
}

function writeProgress(element, { done, total, unit, fraction }, known) {
  const bar = element.querySelector("progress");
  if (fraction !== null) {
    bar.max = 1;
    bar.value = fraction;
  }
  const [first, last] = [known[0], known.at(-1)];
  const rate = last[0] > first[0] ? ((last[1] - first[1]) / (last[0] - first[0])) * 1000 : 0;
  const parts = [total ? `${amount(done, unit)} of ${amount(total, unit)}` : amount(done, unit)];
  if (rate > 0) parts.push(`${amount(rate, unit)}/s`);
  if (rate > 0 && total) parts.push(`${duration((total - done) / rate)} left`);
  element.querySelector("small").textContent = parts.join(" · ");
}

function amount(value, unit) {
  if (unit !== "B" && unit !== "bytes") return `${number.format(Math.round(value))} ${unit}`.trim();
  let step = 0;
  for (; value >= 1000 && step < 5; step += 1) value /= 1000;
  return `${new Intl.NumberFormat("en", { maximumFractionDigits: value < 100 ? 1 : 0 }).format(value)} ${["B", "kB", "MB", "GB", "TB", "PB"][step]}`;
}

function duration(seconds) {
  if (seconds < 60) return `${Math.ceil(seconds)} s`;
  return seconds < 3600 ? `${Math.ceil(seconds / 60)} min` : `${Math.floor(seconds / 3600)} h ${Math.ceil((seconds % 3600) / 60)} min`;
}
