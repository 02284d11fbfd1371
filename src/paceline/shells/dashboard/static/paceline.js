// The pages are made on the server. This script signs in, shows times relative to now, sends the requests of buttons and
// forms to the REST API of the same origin, and asks every few seconds what has changed on the page: only that is
// written, nothing moves. Text only ever goes into text nodes and attributes that the server has escaped.

import { children, morph } from "./changes.js";

const EVERY_MS = 3000;
const SLOW_FACTOR = 4; // a page that took long is asked for again no sooner than so many times that long later
const LATER_MAX_MS = 30000;
const PART_MS = 10000;
const PAUSE_MS = 200; // between the last key of a search and its question
const AT_ONCE = 4; // requests for a selection
const WHOLE_MAX = 10000; // so many that match a filter are selected at most
const WHOLE_TOLD = 100; // of a large selection, how far it is is told each time so many are done
const $ = (id) => document.getElementById(id);
const all = (query, root = document) => [...root.querySelectorAll(query)];
const root = document.documentElement;
const state = { tag: "", timer: 0, ahead: 0, seen: Date.now(), gone: 0, tries: 0, undo: null, exact: false, asking: 0, whole: null, parts: new WeakMap() };

function remember(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch { return null; } // a private window
}

const theme = remember("paceline-theme");
if (theme) root.dataset.theme = theme;
if (root.dataset.now) state.ahead = Number(root.dataset.now) - Date.now();

// -- asking

async function ask(method, path, body, headers = {}) {
  const init = { method, headers: { "X-Paceline-Page": "1", ...headers }, cache: "no-store", credentials: "same-origin" };
  if (body !== undefined) {
    init.headers["Content-Type"] = "application/json";
    init.body = JSON.stringify(body);
  }
  return fetch(path, init);
}

async function problem(answer) {
  const told = await answer.json().catch(() => ({}));
  const fields = (told.errors || []).map((one) => `${one.pointer}: ${one.detail}`).join("; ");
  const text = [told.detail, fields].filter(Boolean).join(" ");
  return text || `Paceline answered ${answer.status}.`;
}

async function signIn(token) {
  const answer = await ask("POST", "/ui/session", { token }).catch(() => null);
  if (answer && answer.ok) return "";
  return answer ? problem(answer) : "Paceline does not answer. Is it running?";
}

// -- times relative to now

const DAY_MS = 86400000;
const units = [[DAY_MS, "days"], [3600000, "h"], [60000, "min"], [1000, "s"]];

function amount(ms) {
  for (const [size, word] of units) {
    const value = Math.floor(ms / size);
    if (value >= 1 && (word !== "days" || value >= 2)) return `${value} ${word}`;
  }
  return ms >= DAY_MS ? "24 h" : "0 s";
}

function spoken(at, now) {
  const away = at - now;
  if (Math.abs(away) > 7 * DAY_MS) return null;
  if (Math.abs(away) < 1000) return "now";
  return away > 0 ? `in ${amount(away)}` : `${amount(-away)} ago`;
}

function showTimes() {
  const now = Date.now() + state.ahead, today = new Date(now).toISOString().slice(0, 10);
  for (const time of all("time[datetime]")) {
    const exact = time.title.replace(/ \d{4} /, " ").replace(" UTC", "");
    const isToday = time.dateTime.startsWith(today);
    const clock = isToday ? exact.replace(/^\d+ \w+ /, "") : exact; // a date is shown where it is not today
    const text = state.exact ? exact : time.dataset.form === "clock" ? clock : spoken(Date.parse(time.dateTime), now) ?? exact;
    if (time.textContent !== text) time.textContent = text;
  }
  const updated = document.querySelector("[data-updated]");
  if (updated) {
    const text = `updated ${amount(Math.max(0, Date.now() - state.seen))} ago`;
    if (updated.textContent !== text) updated.textContent = text;
  }
}

// -- asking for the page again

async function refresh({ free = false, url = location.href } = {}) {
  const turn = ++state.asking;
  const since = performance.now();
  clearTimeout(state.timer);
  let answer = null;
  try {
    answer = await ask("GET", url, undefined, state.tag && !free ? { "If-None-Match": state.tag } : {});
  } catch { /* the server is gone: reported below */ }
  if (turn !== state.asking) return;
  if (answer && answer.status === 401) { location.assign(signInAddress()); return; }
  if (answer && answer.status >= 400 && answer.status < 500) { trouble(await problem(answer)); again(EVERY_MS * 3); return; }
  if (!answer || answer.status >= 500) { isGone(answer); return; }
  isBack();
  if (answer.headers.get("date")) state.ahead = Math.round((Date.parse(answer.headers.get("date")) + 500 - Date.now()) / 1000) * 1000;
  if (answer.status !== 304) {
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    if (turn !== state.asking) return;
    state.tag = answer.headers.get("etag") || "";
    document.title = fresh.title;
    if (free) all("[data-show]").forEach((one) => one.remove());
    for (const part of ["nav", "view"]) if ($(part) && fresh.getElementById(part)) morph($(part), fresh.getElementById(part), free);
    const crumbs = document.querySelector(".bar nav"), wanted = fresh.querySelector(".bar nav");
    if (crumbs && wanted) morph(crumbs, wanted, true);
    const whose = $("whose"), newWhose = fresh.getElementById("whose");
    if (whose && newWhose) morph(whose, newWhose, true);
    countChosen();
  }
  state.seen = Date.now();
  showTimes();
  fillParts();
  again(Math.max(EVERY_MS, SLOW_FACTOR * (performance.now() - since)));
}

// A slow part of a page has its own address: it is loaded once, and again when data-of says that it has changed, but not
// more often than every PART_MS.
async function fillParts() {
  for (const part of all("[data-part]")) {
    const wanted = `${part.dataset.part} ${part.dataset.of}`;
    const known = state.parts.get(part) || { at: -PART_MS };
    if (known.wanted === wanted || performance.now() - known.at < PART_MS) continue;
    state.parts.set(part, { wanted, at: performance.now() });
    const answer = await ask("GET", part.dataset.part).catch(() => null);
    if (!answer || !answer.ok) {
      part.querySelector(".note").textContent = answer ? await problem(answer) : "Paceline does not answer.";
      state.parts.set(part, { wanted: "", at: performance.now() });
      continue;
    }
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById(part.id);
    children(part, fresh, true);
    part.setAttribute("aria-labelledby", fresh.getAttribute("aria-labelledby"));
  }
}

async function download(button) {
  busy(button, true);
  const answer = await ask("GET", button.dataset.download).catch(() => null);
  const file = answer && answer.ok ? await answer.blob().catch(() => null) : null;
  busy(button, false);
  if (!file) { trouble(answer && !answer.ok ? await problem(answer) : "Paceline does not answer; nothing was saved."); return; }
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = button.dataset.name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

function again(ms) {
  clearTimeout(state.timer);
  if (!document.hidden) state.timer = setTimeout(refresh, ms);
}

function signInAddress() { return `/ui/sign-in?next=${encodeURIComponent(location.pathname + location.search)}`; }

function isGone(answer) {
  state.gone ||= Date.now();
  state.tries += 1;
  const wait = Math.min(EVERY_MS * 2 ** Math.min(state.tries - 1, 5), LATER_MAX_MS);
  root.classList.add("is-gone");
  for (const one of all("[data-do], [data-ask], form[data-do] button")) if (!one.matches("form")) one.disabled = true;
  const since = new Date(state.gone).toISOString().slice(11, 19);
  const why = answer ? `It answered ${answer.status}.` : "";
  document.querySelector("[data-gone]").textContent = `${why} Since ${since} UTC this page shows what was last known; ` +
    `definitions, runs and limits are kept in the store. It tries again in ${Math.round(wait / 1000)} s. To start it: paceline up`;
  $("gone").hidden = false;
  document.querySelector("[data-live]").textContent = "Gone";
  again(wait);
}

function isBack() {
  if (!state.gone) return;
  state.gone = state.tries = 0;
  state.tag = "";
  root.classList.remove("is-gone");
  for (const one of all("[data-do], [data-ask], form[data-do] button")) if (!one.matches("form") && !one.dataset.busy) one.disabled = false;
  $("gone").hidden = true;
  document.querySelector("[data-live]").textContent = "Live";
}

async function load(url, push) {
  if (push) history.pushState(null, "", url); else history.replaceState(null, "", url);
  state.tag = "";
  state.whole = null;
  await refresh({ free: true });
  if (push) { scrollTo(0, 0); $("main").focus(); }
}

// -- doing

function trouble(text) {
  document.querySelector("[data-trouble]").textContent = text;
  $("trouble").hidden = false;
}

function told(text, undo) {
  document.querySelector("[data-toast]").textContent = text;
  state.undo = undo || null;
  document.querySelector("[data-undo-now]").hidden = !undo;
  $("toast").hidden = false;
  clearTimeout(state.toast);
  state.toast = setTimeout(() => { $("toast").hidden = true; }, 10000);
}

async function act(button, request, body, { done = "", undo = "" } = {}) {
  const [method, path] = request.split(" ", 2);
  busy(button, true);
  const answer = await ask(method, path, body).catch(() => null);
  busy(button, false);
  if (!answer || !answer.ok) { trouble(answer ? await problem(answer) : "Paceline does not answer; nothing was done."); return null; }
  $("trouble").hidden = true;
  if (done) told(done, undo);
  refresh({ free: true });
  return answer;
}

function busy(button, on) {
  if (!button) return;
  button.disabled = on;
  if (on) button.dataset.busy = "yes"; else delete button.dataset.busy;
}

// Returns the fields of a form as JSON: a name with dots is a path, data-type says how to read a text. Empty ones are left out.
function fields(form) {
  const body = form.dataset.body ? JSON.parse(form.dataset.body) : {};
  for (const field of all("[name]", form)) {
    const value = valueOf(field);
    if (value === undefined) continue;
    const path = field.name.split(".");
    let at = body;
    path.slice(0, -1).forEach((part, place) => { at = at[part] ??= /^\d+$/.test(path[place + 1]) ? [] : {}; });
    at[path.at(-1)] = value;
  }
  return body;
}

function valueOf(field) {
  if (field.type === "checkbox") return field.checked;
  const text = field.value.trim();
  if (field.dataset.type === "list") return text.split(",").map((one) => one.trim()).filter(Boolean);
  if (text === "") return undefined;
  if (field.dataset.type === "number") return Number(text);
  if (field.dataset.type === "json") return JSON.parse(text);
  return text;
}

async function submit(form, request = form.dataset.do, button = form.querySelector("button:not([type=button])")) {
  const alert = form.querySelector("[role=alert]");
  const trial = request !== form.dataset.do;
  const refuse = (text) => { alert.textContent = text; alert.hidden = false; };
  let body;
  $("trouble").hidden = true;
  try { body = fields(form); } catch (error) { refuse(`This is not JSON: ${error.message}`); return; }
  const [method, template] = request.split(" ", 2);
  const path = template.replace(/\{(\w+)\}/g, (_, name) => { const value = body[name]; delete body[name]; return encodeURIComponent(value); });
  const headers = form.dataset.etag ? { "If-Match": `"${form.dataset.etag}"` } : form.dataset.fresh ? { "If-None-Match": "*" } : {};
  busy(button, true);
  const answer = await ask(method, path, method === "DELETE" || form.dataset.bare ? undefined : body, headers).catch(() => null);
  busy(button, false);
  if (!answer || !answer.ok) { refuse(answer ? await problem(answer) : "Paceline does not answer; nothing was done."); return; }
  alert.hidden = true;
  const text = await answer.text();
  if (form.dataset.answers || trial) { showAnswer(form, text); if (!trial) refresh({ free: true }); return; }
  form.closest("dialog")?.close();
  if (form.dataset.then) { location.assign(thenAddress(form.dataset.then, text)); return; }
  told(form.dataset.done || "Done");
  refresh({ free: true });
}

function thenAddress(template, text) {
  const answer = text ? JSON.parse(text) : {};
  return template.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(answer[name] ?? ""));
}

// Shows the answer of the API if the form has a place for it: a price, a new token.
function showAnswer(form, text) {
  const answer = JSON.parse(text);
  for (const place of all("[data-answer]", form)) {
    const value = answer[place.dataset.answer];
    place.textContent = typeof value === "number" ? value.toLocaleString("en") : String(value ?? "–");
  }
  form.querySelector("[data-answers]").hidden = false;
}

// -- choosing rows

function chosen() { return all("tbody input[data-pick]").filter((box) => box.checked); }

function countChosen() {
  const bulk = $("bulk");
  if (!bulk) return;
  for (const box of all("tbody input[data-pick]")) box.closest("tr").classList.toggle("on", box.checked);
  const count = state.whole?.length ?? chosen().length;
  bulk.hidden = !count;
  for (const place of all("[data-count]")) place.textContent = count.toLocaleString("en");
}

function choose(boxes, on) {
  state.whole = null;
  for (const box of boxes) box.checked = on;
  countChosen();
}

// Chooses everything that the filter matches, also on other pages: reads the API page by page.
async function chooseWhole(button) {
  const keys = [];
  let cursor = "";
  busy(button, true);
  do {
    const answer = await ask("GET", `${button.dataset.whole}&limit=1000${cursor && `&cursor=${encodeURIComponent(cursor)}`}`).catch(() => null);
    if (!answer || !answer.ok) { trouble(answer ? await problem(answer) : "Paceline does not answer; nothing more was selected."); break; }
    const page = await answer.json();
    for (const one of page.items) keys.push(`${encodeURIComponent(one.user)}/monitors/${encodeURIComponent(one.id)}`);
    cursor = page.next_cursor;
  } while (cursor && keys.length < WHOLE_MAX);
  busy(button, false);
  choose(all("tbody input[data-pick]"), true);
  state.whole = keys;
  countChosen();
  if (cursor) trouble(`There are more. The first ${keys.length.toLocaleString("en")} are selected.`);
}

async function actOnChosen(button) {
  const keys = state.whole ? [...state.whole] : chosen().map((box) => box.dataset.pick);
  const total = keys.length;
  const [method, template] = button.dataset.each.split(" ", 2);
  const body = button.dataset.body ? JSON.parse(button.dataset.body) : undefined;
  let done = 0, refused = "";
  busy(button, true);
  const work = async () => {
    while (keys.length) {
      const answer = await ask(method, template.replace("{at}", keys.shift()), body).catch(() => null);
      if (total > WHOLE_TOLD && !(keys.length % WHOLE_TOLD)) told(`${button.dataset.done} ${done} of ${total}…`);
      if (answer && answer.ok) done += 1; else refused = answer ? await problem(answer) : "Paceline does not answer.";
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  busy(button, false);
  told(`${button.dataset.done} ${done.toLocaleString("en")}`);
  if (refused) trouble(refused);
  refresh({ free: true });
}

// -- events

function onClick(event) {
  const at = (query) => event.target.closest(query);
  let found;
  if (at("#theme")) {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = remember("paceline-theme", dark ? "light" : "dark") || (dark ? "light" : "dark");
  } else if (at("#burger")) {
    at("#burger").setAttribute("aria-expanded", String($("nav").classList.toggle("open")));
  } else if (at("#exact")) {
    state.exact = !state.exact;
    at("#exact").setAttribute("aria-pressed", String(state.exact));
    remember("paceline-exact", state.exact ? "yes" : "");
    showTimes();
  } else if (at("#leave")) {
    ask("DELETE", "/ui/session").catch(() => null).then(() => location.assign("/ui/sign-in"));
  } else if ((found = at("[data-hide]"))) {
    $(found.dataset.hide).hidden = true;
  } else if (at("[data-undo-now]")) {
    const undo = state.undo;
    $("toast").hidden = true;
    if (undo) act(null, undo, undefined, { done: "Undone" });
  } else if (at("[data-show]")) {
    refresh({ free: true });
  } else if ((found = at("[data-download]"))) {
    download(found);
  } else if ((found = at("[data-ask]"))) {
    $(found.dataset.ask).showModal();
  } else if ((found = at("[data-trial]"))) {
    if (found.form.reportValidity()) submit(found.form, found.dataset.trial, found);
  } else if ((found = at("button[data-each]"))) {
    at("dialog")?.close();
    actOnChosen(found);
  } else if (at("[data-close]")) {
    at("dialog").close();
  } else if ((found = at("button[data-do]"))) {
    act(found, found.dataset.do, found.dataset.body ? JSON.parse(found.dataset.body) : undefined, found.dataset);
  } else if ((found = at("a[data-load]")) && !event.ctrlKey && !event.metaKey && !event.shiftKey) {
    event.preventDefault();
    load(found.href, found.dataset.load === "push");
  } else if ((found = at("button[data-dense]"))) {
    remember("paceline-dense", found.dataset.dense);
    dense();
  } else if (at("#clear")) {
    choose(chosen(), false);
  } else if ((found = at("button[data-whole]"))) {
    chooseWhole(found);
  }
}

function dense() {
  const on = remember("paceline-dense") === "yes";
  if ($("list")) $("list").classList.toggle("dense", on);
  for (const one of all("button[data-dense]")) one.setAttribute("aria-pressed", String(on === (one.dataset.dense === "yes")));
}

function onChange(event) {
  const box = event.target;
  if (box.matches("[data-all]")) {
    choose(all("tbody input[data-pick]"), box.checked);
  } else if (box.matches("[data-pick]")) {
    choose([], false);
  } else if (box.closest("form[data-filters]")) {
    filter(box.closest("form"));
  }
}

function filter(form) {
  const asked = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value) asked.set(name, value);
  const query = asked.toString();
  load(location.pathname + (query ? `?${query}` : ""), false);
}

function onKey(event) {
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "/" && !typing) { event.preventDefault(); ($("q") || $("go")).focus(); }
  if (event.key === "Escape" && !document.querySelector("dialog[open]") && chosen().length) choose(chosen(), false);
}

function watch() {
  let typing = 0;
  document.addEventListener("click", onClick);
  document.addEventListener("change", onChange);
  document.addEventListener("keydown", onKey);
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.matches("[data-do]")) { event.preventDefault(); submit(form); }
    if (form.matches("[data-filters]")) { event.preventDefault(); filter(form); }
  });
  document.addEventListener("input", (event) => {
    const form = event.target.closest("form[data-filters]");
    if (!form || event.target.type !== "search") return;
    clearTimeout(typing);
    typing = setTimeout(() => filter(form), PAUSE_MS);
  });
  document.addEventListener("visibilitychange", () => { if (document.hidden) clearTimeout(state.timer); else refresh(); });
  addEventListener("popstate", () => { state.tag = ""; refresh({ free: true }); });
}

// -- beginning

function takeToken() {
  const token = new URLSearchParams(location.hash.slice(1)).get("token");
  if (token !== null) history.replaceState(null, "", location.pathname + location.search);
  return token;
}

async function enter(form) {
  const next = form.dataset.next;
  const go = async (token) => {
    const refused = await signIn(token);
    if (!refused) { location.replace(next); return; }
    $("refused").textContent = refused;
    $("refused").hidden = false;
    $("token").select();
  };
  form.addEventListener("submit", (event) => { event.preventDefault(); go($("token").value); });
  const token = takeToken();
  if (token) { await go(token); return; }
  // A visitor who followed a link from another site may be signed in: browsers leave the cookie out of such a visit.
  if (document.referrer || location.search) {
    const answer = await fetch("/ui/session", { headers: { "X-Paceline-Page": "1" } }).catch(() => null);
    if (answer && answer.ok && (await answer.json()).user) location.replace(next);
  }
}

async function begin() {
  if ($("enter")) { enter($("enter")); return; }
  const token = takeToken();
  if (token) { await signIn(token); location.reload(); return; }
  if (!$("view")) return;
  state.exact = remember("paceline-exact") === "yes";
  $("exact").setAttribute("aria-pressed", String(state.exact));
  dense();
  watch();
  showTimes();
  fillParts();
  setInterval(() => { if (!document.hidden) showTimes(); }, 1000);
  again(EVERY_MS);
}

begin();
