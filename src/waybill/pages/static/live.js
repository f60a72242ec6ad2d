// Makes a page live: numbers are written into its figures as they come, parts that show more are loaded again.
//
//   <b data-count="KIND STATE">12</b>                   the number of records of a kind in a state
//   <div data-refresh="counts:KIND sessions">           loaded again (htmx, on waybill:refresh) when one of these topics changes
//
// Numbers change at most twice a second, parts every two seconds; nothing is loaded while somebody writes into the part.

const NUMBERS_INTERVAL = 500;
const PARTS_INTERVAL = 2000;
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
  document.body.dataset.heard = "yes"; // the first message has come: the page is live
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
  }
  pendingCounts.clear();
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

function refreshParts() {
  partsTimer = null;
  for (const part of document.querySelectorAll("[data-refresh]")) {
    const isConcerned = part.dataset.refresh.split(" ").some((topic) => changedTopics.has(topic));
    if (!isConcerned) continue;
    if (part.contains(document.activeElement) && document.activeElement.matches("input, select, textarea")) continue;
    htmx.trigger(part, "waybill:refresh");
  }
  changedTopics.clear();
}
