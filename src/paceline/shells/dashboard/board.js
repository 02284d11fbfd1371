"use strict";
// Reads the REST API of the same origin with the token that was entered, and draws what it says. Text only ever goes
// into text nodes. One round of questions at a time; none while the tab is hidden.

const ROUND_MS = 2000;
const SLOW_FACTOR = 4; // a question that took long is asked again no sooner than so many times that long later
const SVG = "http://www.w3.org/2000/svg";
const $ = (id) => document.getElementById(id);
const state = { token: "", admin: false, picked: { monitor: null, job: null }, later: new Map(), timer: null, round: 0,
  pressed: false };

class Refused extends Error {
  constructor(status, detail) { super(detail); this.status = status; }
}

async function ask(path) {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${state.token}` }, cache: "no-store" });
  const body = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, body.detail || `The server answered ${answer.status}.`);
  return body;
}

// As ask, but what takes long is remembered and asked for less often.
async function askRarely(path) {
  const known = state.later.get(path);
  if (known && performance.now() < known.at) return known.body;
  const since = performance.now();
  const body = await ask(path);
  const took = performance.now() - since;
  state.later.set(path, { body, at: performance.now() + took * SLOW_FACTOR });
  return body;
}

// -- drawing

function make(name, attributes, ...children) {
  const node = document.createElement(name);
  return fill(node, attributes, children);
}

function draw(name, attributes, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key === "onclick") node.addEventListener("click", value);
    else if (value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function table(heads, rows, empty) {
  if (!rows.length) return make("p", { class: "empty" }, empty);
  const head = make("tr", {}, ...heads.map((text) => make("th", {}, text)));
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}

function row(...cells) {
  return make("tr", {}, ...cells.map((cell) => (cell instanceof Node ? make("td", {}, cell) : make("td", {}, String(cell)))));
}

function wide(columns, ...content) {
  return make("tr", {}, make("td", { colspan: columns }, ...content));
}

const TONES = {
  ok: "good", failing: "bad", late: "late", new: "rest", paused: "rest", open: "good", closed: "bad", ready: "good",
  full: "late", quarantined: "bad", no_key: "bad", disabled: "rest", queued: "rest", running: "work",
  cancelling: "late", done: "good", failed: "bad", cancelled: "rest", parked: "late", sending: "work", unknown: "late",
  ongoing: "work", success: "good", "not all well": "bad",
};

function chip(text) {
  return make("span", { class: `chip ${TONES[text] || ""}` }, text);
}

function pick(kind, id) {
  const chosen = state.picked[kind] === id;
  return make("button", { class: "pick", "aria-expanded": String(chosen), onclick: () => {
    state.picked[kind] = chosen ? null : id;
    soon(0);
  } }, id);
}

// Parts of a whole, side by side: [[tone, amount, words], ...].
function stacked(parts, total, width = 260) {
  const picture = draw("svg", { width, height: 12, role: "img", "aria-label": words(parts) });
  picture.append(draw("title", {}, words(parts)), draw("rect", { class: "ground", width, height: 12, rx: 3 }));
  let left = 0;
  for (const [tone, amount] of parts) {
    const share = total > 0 ? (amount / total) * width : 0;
    if (share > 0) picture.append(draw("rect", { class: tone, x: left, width: Math.max(share, 1), height: 12 }));
    left += share;
  }
  return picture;
}

function words(parts) {
  return parts.filter(([, amount]) => amount > 0).map(([, amount, text]) => `${amount} ${text}`).join(", ") || "nothing yet";
}

function bars(values, { width = 640, height = 56, tones = () => "bar", title = "" } = {}) {
  const most = Math.max(...values, 1);
  const step = Math.min(width / Math.max(values.length, 1), 24);
  const picture = draw("svg", { width, height, role: "img", "aria-label": title });
  picture.append(draw("title", {}, title), draw("rect", { class: "ground", y: height - 1, width, height: 1 }));
  values.forEach((value, place) => {
    const tall = value > 0 ? Math.max((value / most) * (height - 2), 1) : 0;
    picture.append(draw("rect", { class: tones(place), x: place * step, y: height - 1 - tall, width: Math.max(step - 1, 1), height: tall }));
  });
  return picture;
}

const number = (value) => Number(value).toLocaleString("en");
const clock = (text) => (text ? new Date(text).toLocaleTimeString() : "–");

// -- the sections

async function showMonitors() {
  const { items, next_cursor: more } = await ask("/v1/users/me/monitors?limit=50");
  const rows = [];
  for (const one of items) {
    const check = one.check.url || one.check.host || one.check.name || one.check.kind;
    rows.push(row(pick("monitor", one.id), chip(one.health), `${one.check.kind} ${check}`.slice(0, 80),
      one.every ? `every ${one.every}` : `${one.cron} ${one.timezone}`, number(one.schedule.counter), clock(one.schedule.next_due)));
    if (state.picked.monitor === one.id) rows.push(wide(6, rules(one), await monitorRuns(one.id)));
  }
  if (more) rows.push(wide(6, make("span", { class: "dim" }, "and more: paceline monitor list")));
  place("monitors", table(["Monitor", "Health", "Check", "When", "Runs", "Next due"], rows,
    "No monitor yet: paceline monitor set NAME --url https://… --every 1m"));
}

function rules(one) {
  const skipped = one.skipped;
  const told = skipped ? ` · ${number(skipped.count)} firings made no run: ${skipped.reason}` : "";
  const failures = one.failures ? ` · ${number(one.failures)} failures in a row` : "";
  return make("p", { class: "dim" }, `missed: ${one.missed} · overlap: ${one.overlap}${told}${failures}`);
}

async function monitorRuns(id) {
  const { items } = await ask(`/v1/users/me/monitors/${encodeURIComponent(id)}/runs?limit=80`);
  const runs = items.reverse();
  const good = runs.map((run) => run.state === "ok");
  const title = `latency of the newest ${runs.length} runs; red is not ok`;
  return bars(runs.map((run) => run.latency_ms || 0), { tones: (place) => (good[place] ? "good" : "bad"), title });
}

async function showBatches() {
  const { items } = await ask("/v1/batches?limit=10");
  const blocks = [];
  for (const batch of items) {
    const days = await ask(`/v1/batches/${encodeURIComponent(batch.id)}/days?limit=1`);
    if (days.items.length) {
      const day = await askRarely(`/v1/batches/${encodeURIComponent(batch.id)}/days/${days.items[0].date}`);
      blocks.push(batchDay(day));
    } else {
      blocks.push(make("p", { class: "dim" }, `${batch.id}: no day yet; the next is planned ${clock(batch.next_start)}`));
    }
  }
  place("batches", blocks.length ? make("div", {}, ...blocks)
    : make("p", { class: "empty" }, "No batch yet: paceline batch set NAME"));
}

function batchDay(day) {
  const total = day.totals;
  const waiting = (total.waiting || 0) + (total.retry || 0) + (total.aside || 0);
  const parts = [["good", total.done || 0, "done"], ["bad", (total.failed || 0) + (total.unknown || 0), "dead letters"],
    ["rest", total.skipped || 0, "skipped"], ["work", total.out || 0, "out"], ["ground", waiting, "waiting"]];
  const passed = Date.now();
  const starts = day.histogram.map((window) => Date.parse(window.start));
  return make("div", {},
    make("p", {}, make("b", {}, `${day.batch} ${day.date}`), ` ${number(day.runs)} runs: ${words(parts)}`,
      make("span", { class: "dim" }, ` · largest gap ${day.evenness.ratio.toFixed(2)} of the ideal`)),
    stacked(parts, day.runs, 640),
    bars(day.histogram.map((window) => window.runs), { height: 40, tones: (place) => (starts[place] < passed ? "past" : "bar"),
      title: `runs in each ${day.histogram_window} of the day` }));
}

async function showJobs() {
  const [{ items }, budget] = await Promise.all([ask("/v1/jobs?limit=10"), ask("/v1/users/me/budget")]);
  const rows = [];
  for (const job of items) {
    const counts = job.counts;
    const parts = [["good", counts.done, "done"], ["bad", counts.failed, "failed"], ["rest", counts.cancelled, "cancelled"],
      ["work", counts.ongoing, "ongoing"], ["late", counts.sending + counts.unknown, "being sent or looked up"],
      ["held", counts.parked, "parked"], ["ground", counts.queued, "queued"]];
    const word = job.finished ? (job.success ? "success" : "not all well") : job.state;
    rows.push(row(pick("job", job.job), chip(word), job.title.slice(0, 60) || "–", job.user, stacked(parts, job.measurements),
      `${number(job.cost.settled)} of ${number(job.cost.reserved)}`));
    if (state.picked.job === job.job) rows.push(wide(6, await jobDetail(job.job)));
  }
  const spent = [["work", budget.spent, "credits spent"], ["held", budget.held, "held"]];
  const mine = make("p", {}, `Your credits today: ${number(budget.left)} of ${number(budget.limit)} left`,
    stacked(spent, budget.limit, 640));
  place("jobs", make("div", {}, mine, table(["Job", "State", "Title", "User", "Measurements", "Credits"], rows,
    "No job yet: paceline job submit FILE")));
}

async function jobDetail(id) {
  const job = await ask(`/v1/jobs/${encodeURIComponent(id)}`);
  const lines = job.measurements.slice(0, 100).map((one) => row(one.index, chip(one.state), one.types.join(", "),
    one.targets.join(", "), one.atlas_id || "–", one.account || "–", one.reason || "–"));
  const wait = job.waiting ? make("p", { class: "dim" }, `Waits: ${job.waiting.reason}`
    + (job.waiting.expected_room_at ? `; room is expected at ${clock(job.waiting.expected_room_at)}` : "")) : null;
  return make("div", {}, wait, table(["#", "State", "Type", "Target", "At RIPE", "Account", "Reason"], lines, ""));
}

async function showAccounts() {
  const { items } = await ask("/v1/accounts");
  const rows = items.map((one) => row(one.id, chip(one.state), meter(one.usage.concurrent), meter(one.usage.daily_results),
    meter(one.usage.daily_credits), one.usage.balance ? meter(one.usage.balance) : "–", number(one.sends), one.reason || "–"));
  place("accounts", table(["Account", "State", "Slots", "Results a day", "Credits a day", "Balance", "Sent", "Reason"], rows,
    "No account yet: paceline account set NAME, then paceline key add NAME"));
}

function meter(one) {
  const parts = [["work", one.spent, "spent"], ["held", one.held, "held"], ["late", one.foreign, "used by others"]];
  const picture = stacked(parts, one.limit, 130);
  return make("span", {}, picture, make("small", { class: "dim" }, `${number(one.spent + one.held + one.foreign)} of ${number(one.limit)}`));
}

async function showFigures() {
  const one = await ask("/v1/status");
  const figures = [["monitors", one.monitors], ["runs waiting", one.runs_waiting], ["s behind", one.late_s.toFixed(1)], ["s checks wait", one.start_late_s.checks.toFixed(1)],
    ["batch calls waiting", one.calls_waiting], ["dead letters", one.dead_letters], ["users", one.users]];
  $("figures").replaceChildren(...figures.map(([name, value]) => make("div", { class: "figure" },
    make("b", {}, typeof value === "number" ? number(value) : value), make("span", {}, name))));
}

async function showPulse() {
  const answer = await fetch("/readyz", { cache: "no-store" });
  const body = await answer.json();
  const text = answer.ok ? `ready; ${body.loops.length} loops turn` : body.detail;
  $("pulse").textContent = text;
  $("pulse").className = answer.ok ? "good" : "bad";
}

function place(id, content) {
  if (state.pressed) return; // what a finger is on must not be taken from under it
  const body = $(id).querySelector(".body");
  const held = document.activeElement && body.contains(document.activeElement) ? document.activeElement.textContent : null;
  body.replaceChildren(content);
  if (held !== null) [...body.querySelectorAll("button")].find((one) => one.textContent === held)?.focus();
}

// -- the round

async function round() {
  const own = ++state.round;
  try {
    await showPulse();
    if (state.token) {
      const sections = [showMonitors, showJobs];
      if (state.admin) sections.push(showFigures, showBatches, showAccounts);
      for (const show of sections) await show();
    }
    trouble("");
  } catch (error) {
    if (error instanceof Refused && error.status === 401) leave("This token is not valid, or was revoked. Enter another.");
    else trouble(error instanceof Refused ? error.message : "Paceline cannot be reached. Is it running? This page tries again.");
    if (!(error instanceof Refused)) $("pulse").className = "bad";
  }
  if (own === state.round) soon(ROUND_MS);
}

function soon(ms) {
  clearTimeout(state.timer);
  if (!document.hidden) state.timer = setTimeout(round, ms);
}

function trouble(text) {
  $("trouble").textContent = text;
  $("trouble").hidden = !text;
}

async function enter(token) {
  state.token = token;
  try {
    const me = await ask("/v1/users/me");
    state.admin = me.role === "admin";
  } catch (error) {
    leave(error instanceof Refused ? "This token is not valid, or was revoked. Enter another." : "Paceline cannot be reached.");
    return;
  }
  sessionStorage.setItem("paceline-token", token);
  document.body.classList.add("in");
  shown(true);
  trouble("");
  soon(0);
}

function leave(why) {
  state.token = "";
  state.picked = { monitor: null, job: null };
  state.later.clear();
  sessionStorage.removeItem("paceline-token");
  document.querySelectorAll("section .body").forEach((body) => body.replaceChildren());
  $("figures").replaceChildren();
  shown(false);
  trouble(why);
}

function shown(inside) {
  for (const id of ["monitors", "jobs", "leave"]) $(id).hidden = !inside;
  for (const id of ["figures", "batches", "accounts"]) $(id).hidden = !(inside && state.admin);
  for (const id of ["enter", "hello"]) $(id).hidden = inside;
}

$("enter").addEventListener("submit", (event) => {
  event.preventDefault();
  const token = $("token").value.trim();
  $("token").value = "";
  enter(token);
});
$("leave").addEventListener("click", () => leave(""));
document.addEventListener("pointerdown", () => { state.pressed = true; });
for (const end of ["pointerup", "pointercancel", "click"]) document.addEventListener(end, () => { state.pressed = false; });
document.addEventListener("visibilitychange", () => soon(0));

// A link may carry the token behind the #, which no server ever sees; it is taken out of the address at once.
const given = new URLSearchParams(location.hash.slice(1)).get("token");
if (given) history.replaceState(null, "", location.pathname);
const kept = given || sessionStorage.getItem("paceline-token");
if (kept) enter(kept);
else soon(0);
