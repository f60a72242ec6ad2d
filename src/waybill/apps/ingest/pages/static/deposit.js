// The form for deposits: files are dropped, sent in pieces, and go on after a lost connection or a reload.
//
//   announce  POST uploads {filename, size}            -> the token of the upload, the size of its pieces
//   pieces    PUT  uploads/TOKEN?offset=N              -> where the next one begins; repeated until the server has it
//   submit    POST batches {upload: TOKEN, profile...} -> the deposit, once however often it is sent
//
// What is unfinished is remembered in localStorage by name, size and time of the file; after a reload the same file, chosen again, goes on.
// A manifest is checked before anything of it is sent. Without this script the browser sends the form as it is.

const API = "/api/v1/ingest";
const REMEMBERED = "waybill uploads";
const AT_ONCE = 2; // files
const RETRIES = [1000, 2000, 5000, 10000, 20000, 30000]; // milliseconds
const form = document.getElementById("deposit-form");
const list = document.getElementById("uploads");
const drop = document.getElementById("drop");
const input = drop.querySelector("input");
const status = document.getElementById("send-status");
const manifestReport = document.getElementById("manifest-report");
const rows = new Set();
const number = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

class Refused extends Error {}

async function ask(method, path, body, headers = {}) {
  let answer;
  try {
    answer = await fetch(API + path, { method, body, headers: { "X-CSRF-Token": csrf(), ...headers } });
  } catch {
    throw new Error("The connection is lost; it is tried again by itself.");
  }
  const view = answer.status === 204 ? null : await answer.json().catch(() => null);
  if (answer.ok) return view;
  const message = view?.error ? `${view.error.message} ${view.error.hint}` : `The server answered ${answer.status}.`;
  if (answer.status >= 500 || answer.status === 408 || answer.status === 429) throw new Error(message);
  throw Object.assign(new Refused(message), { status: answer.status });
}

const csrf = () => document.querySelector("meta[name=csrf-token]").content;
const json = (body) => [JSON.stringify(body), { "Content-Type": "application/json" }];

// --- what is remembered over a reload

const keyOf = (file) => `${file.name} ${file.size} ${file.lastModified}`;
const remembered = () => JSON.parse(localStorage.getItem(REMEMBERED) ?? "{}");
function remember(key, value) {
  const all = remembered();
  if (value) all[key] = value;
  else delete all[key];
  localStorage.setItem(REMEMBERED, JSON.stringify(all));
}

// --- rows

class UploadRow {
  constructor(file) {
    this.file = file;
    this.state = "chosen"; // chosen, checking, faulty, sending, done, failed
    this.element = document.createElement("li");
    this.element.innerHTML = '<span class="name"></span><button type="button" class="plain">Remove</button><progress max="1" value="0" aria-label="Sent"></progress><small class="about" role="status"></small>';
    this.element.querySelector(".name").textContent = file.name;
    this.bar = this.element.querySelector("progress");
    this.button = this.element.querySelector("button");
    this.button.setAttribute("aria-label", `Remove ${file.name}`);
    this.button.addEventListener("click", () => this.remove());
    this.controller = new AbortController();
    list.append(this.element);
    this.say(formatBytes(file.size));
    if (remembered()[keyOf(file)]) this.say(`${formatBytes(file.size)}; it goes on where it stopped`);
  }

  say(text) {
    this.element.querySelector(".about").textContent = text;
  }

  set(state, text) {
    this.state = state;
    this.element.className = state;
    if (text) this.say(text);
  }

  remove() {
    this.controller.abort();
    rows.delete(this);
    const known = remembered()[keyOf(this.file)];
    if (known && this.state !== "done") {
      remember(keyOf(this.file), null);
      ask("DELETE", `/uploads/${known}`).catch(() => {}); // what stays is swept by the server
    }
    this.element.remove();
  }

  async check() {
    const head = await this.file.slice(0, 64).text();
    if (!head.startsWith("#%checkm") && !this.file.name.endsWith(".checkm")) return;
    this.set("checking", "The manifest is checked …");
    const report = await checkManifest(this.file, this.file.name);
    this.element.querySelector(".complaints")?.remove();
    if (report.is_good) return this.set("chosen", `A manifest of ${number.format(report.count)}, without a fault`);
    this.set("faulty", `${report.complaints.length} faults: it is not sent`);
    this.element.append(listComplaints(report));
  }

  async send(fields) {
    this.set("sending", "is announced …");
    const upload = await this.upload();
    this.set("sending", "All of it has come; the server reads it once …");
    const [body, headers] = json({ ...fields, upload, filename: this.file.name });
    const batch = await persist(this, () => ask("POST", "/batches", body, headers));
    remember(keyOf(this.file), null);
    this.set("done");
    this.bar.value = 1;
    this.button.remove();
    const link = document.createElement("a");
    link.href = `/ingest/deposits/${encodeURIComponent(batch.id)}`;
    link.textContent = "Follow it";
    this.say("Received. ");
    this.element.querySelector(".about").append(link);
    return link.href;
  }

  // Send what has not come yet, piece by piece; return the token.
  async upload() {
    const key = keyOf(this.file);
    let view = null;
    if (remembered()[key]) {
      view = await persist(this, () => ask("GET", `/uploads/${remembered()[key]}`)).catch((error) => {
        if (error instanceof Refused) return null; // too old, or of somebody else: it begins again
        throw error;
      });
    }
    if (!view) {
      const [body, headers] = json({ filename: this.file.name, size: this.file.size });
      view = await persist(this, () => ask("POST", "/uploads", body, headers));
      remember(key, view.upload);
    }
    const began = performance.now();
    const first = view.offset;
    while (view.offset < this.file.size) {
      const { offset } = view;
      const piece = this.file.slice(offset, offset + view.piece_size);
      const headers = { "Content-Type": "application/octet-stream", ...(await digestOf(piece)) };
      const sent = await persist(this, () => sendPiece(this, `/uploads/${view.upload}?offset=${offset}`, piece, headers, offset, began, first));
      view = { ...view, offset: sent.offset };
    }
    return view.upload;
  }

  showProgress(done, began, first) {
    const size = this.file.size || 1;
    this.bar.value = done / size;
    const seconds = (performance.now() - began) / 1000;
    const rate = (done - first) / Math.max(seconds, 0.1);
    const left = rate > 0 ? (size - done) / rate : null;
    this.say(`${formatBytes(done)} of ${formatBytes(size)}${seconds > 0.5 ? ` · ${formatBytes(rate)}/s · ${formatLeft(left)}` : ""}`);
  }
}

async function digestOf(piece) {
  if (!crypto.subtle) return {}; // only pages over TLS, or of this machine, can compute one
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await piece.arrayBuffer()));
  return { "Content-Digest": `sha-256=:${btoa(String.fromCharCode(...digest))}:` };
}

// XMLHttpRequest, because fetch does not say how much of a body has been sent.
function sendPiece(row, path, piece, headers, offset, began, first) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", API + path);
    request.setRequestHeader("X-CSRF-Token", csrf());
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    request.upload.onprogress = (event) => row.showProgress(offset + event.loaded, began, first);
    request.onerror = () => reject(new Error("The connection is lost; it is tried again by itself."));
    request.onabort = () => reject(new Refused("It was removed."));
    request.onload = () => {
      const view = JSON.parse(request.responseText || "null");
      if (request.status < 300) return resolve(view);
      const message = view?.error?.message ?? `The server answered ${request.status}.`;
      reject(request.status >= 500 || request.status === 408 ? new Error(message) : new Refused(message));
    };
    row.controller.signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(piece);
  });
}

// Try again after what may pass: a lost connection, a server that restarts.
async function persist(row, attempt) {
  for (let n = 0; ; n += 1) {
    try {
      return await attempt();
    } catch (error) {
      if (error instanceof Refused || row.controller.signal.aborted) throw error;
      row.say(error.message);
      await new Promise((resolve) => setTimeout(resolve, RETRIES[Math.min(n, RETRIES.length - 1)]));
    }
  }
}

// --- manifests

async function checkManifest(body, filename) {
  const type = form.elements.type.value;
  const query = new URLSearchParams({ filename, ...(type ? { type } : {}) });
  return ask("POST", `/check?${query}`, body, { "Content-Type": "application/octet-stream" });
}

function listComplaints(report) {
  const element = document.createElement("ol");
  element.className = "complaints";
  element.setAttribute("aria-label", "Faults");
  for (const each of report.complaints) {
    const item = document.createElement("li");
    if (each.line) {
      item.value = each.line;
      const line = document.createElement("b");
      line.textContent = `Line ${each.line} `;
      item.append(line);
    }
    item.append(each.text);
    element.append(item);
  }
  return element;
}

let manifestTimer = null;
async function checkPasted() {
  const text = form.elements.manifest.value.trim();
  manifestReport.replaceChildren();
  if (!text) return true;
  try {
    const report = await checkManifest(new Blob([`${text}\n`]), "manifest.checkm");
    const about = document.createElement("p");
    about.className = report.is_good ? "good" : "bad";
    about.textContent = report.is_good ? `${number.format(report.count)} rows, no fault.` : `${report.complaints.length} faults in the manifest. Nothing is sent.`;
    manifestReport.replaceChildren(about, ...(report.is_good ? [] : [listComplaints(report)]));
    return report.is_good;
  } catch (error) {
    manifestReport.textContent = error.message;
    return false;
  }
}

// --- the form

function addFiles(files) {
  for (const file of files) {
    const row = new UploadRow(file);
    rows.add(row);
    row.check().catch((error) => row.set("failed", error.message));
  }
}

function readFields() {
  const text = (name) => form.elements[name].value.trim();
  const fields = { profile: text("profile"), title: text("title"), creator: text("creator"), date: text("date"), notification: text("notification"), note: text("note") };
  if (text("local_id")) fields.local_ids = text("local_id").split(";").map((each) => each.trim()).filter(Boolean);
  if (text("primary_id")) Object.assign(fields, { primary_id: text("primary_id"), update: true });
  if (text("type")) fields.type = text("type");
  return fields;
}

async function sendFiles() {
  const fields = readFields();
  const waiting = [...rows].filter((row) => row.state === "chosen" || row.state === "failed");
  if (!waiting.length) return void (status.textContent = rows.size ? "What is left has faults: repair it, then drop it again." : "Choose a file first.");
  if (waiting.length > 1 && (fields.local_ids || fields.primary_id)) return void (status.textContent = "A local id, or the ARK of an object, is of one deposit: send one file with it.");
  const total = waiting.length;
  const sent = [];
  status.textContent = `Sending ${total} …`;
  const worker = async () => {
    for (let row = waiting.shift(); row; row = waiting.shift()) {
      try {
        sent.push(await row.send(fields));
        status.textContent = `${sent.length} of ${total} received`;
      } catch (error) {
        if (rows.has(row)) row.set("failed", error.message);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  if (total === 1 && sent.length === 1) location.href = sent[0];
}

form.addEventListener("submit", async (event) => {
  const way = form.elements.way.value;
  if (way === "url") return;
  event.preventDefault();
  delete form.dataset.sent;
  const send = document.getElementById("send");
  send.disabled = true;
  try {
    if (way === "files") await sendFiles();
    else if (await checkPasted()) form.submit();
  } finally {
    send.disabled = false;
  }
});
function takeChosenFiles() {
  addFiles(input.files);
  input.value = "";
}
input.addEventListener("change", takeChosenFiles);
if (input.files.length) takeChosenFiles(); // chosen before this script was loaded
for (const name of ["dragover", "dragleave", "drop"])
  drop.addEventListener(name, (event) => {
    event.preventDefault();
    drop.classList.toggle("over", name === "dragover");
    if (name === "drop") addFiles(event.dataTransfer.files);
  });
const pasted = form.elements.manifest;
pasted.addEventListener("input", () => {
  clearTimeout(manifestTimer);
  manifestTimer = setTimeout(checkPasted, 500);
});
pasted.addEventListener("dragover", (event) => event.preventDefault());
pasted.addEventListener("drop", async (event) => {
  const [file] = event.dataTransfer.files;
  if (!file) return;
  event.preventDefault();
  pasted.value = await file.text();
  checkPasted();
});
addEventListener("beforeunload", (event) => {
  if ([...rows].some((row) => row.state === "sending")) event.preventDefault();
});
const unfinished = Object.keys(remembered());
if (unfinished.length) {
  const names = unfinished.map((key) => key.split(" ").slice(0, -2).join(" "));
  status.textContent = `Unfinished: ${names.join(", ")}. Choose the same file again, and it goes on where it stopped.`;
}

function formatBytes(size) {
  let unit = 0;
  for (; size >= 1000 && unit < 5; unit += 1) size /= 1000;
  return `${number.format(size)} ${["B", "kB", "MB", "GB", "TB", "PB"][unit]}`;
}

function formatLeft(seconds) {
  if (seconds === null) return "";
  if (seconds < 60) return `${Math.ceil(seconds)} s left`;
  return seconds < 3600 ? `${Math.ceil(seconds / 60)} min left` : `${number.format(seconds / 3600)} h left`;
}
