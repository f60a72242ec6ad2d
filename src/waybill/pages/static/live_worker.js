// One stream of changes for all tabs of a browser. It is open while at least one of them is visible.
//
// A tab says {visible: true|false}; it is told {event, data} for every message, and the latest of each when it joins.

const tabs = new Map(); // port -> whether its tab is visible
const latest = new Map(); // the last message of each topic
let source = null;

function tell(port, message) {
  port.postMessage(message);
}

function tellAll(message) {
  for (const [port, visible] of tabs) if (visible) tell(port, message);
}

function open() {
  source = new EventSource("/live");
  for (const name of ["counts", "sessions", "holds", "store"]) {
    source.addEventListener(name, (event) => {
      const message = { event: name, data: JSON.parse(event.data) };
      latest.set(name === "counts" ? `counts ${message.data.kind}` : name, message);
      tellAll(message);
    });
  }
  source.onopen = () => tellAll({ event: "connection", data: { open: true } });
  source.onerror = () => tellAll({ event: "connection", data: { open: false } });
}

function openOrClose() {
  const wanted = [...tabs.values()].some(Boolean);
  if (wanted && source === null) open();
  if (!wanted && source !== null) {
    source.close();
    source = null;
    latest.clear(); // a tab that comes back starts with what is true then
  }
}

onconnect = (event) => {
  const port = event.ports[0];
  port.onmessage = ({ data }) => {
    if (data.gone) {
      tabs.delete(port);
    } else {
      const was = tabs.get(port);
      tabs.set(port, data.visible);
      if (data.visible && !was) for (const message of latest.values()) tell(port, message);
    }
    openOrClose();
  };
  port.start();
};
