// Writes the differences of a fresh copy into a page, and nothing else: elements are matched by their key (data-key or
// id), else by their place. Focus, open dialogs, typed text and chosen rows stay as they are.
// free: rows may come, go and move. Otherwise a list keeps its rows in place, and a button offers the changes.

function keyOf(node) { return node.nodeType === 1 ? node.getAttribute("data-key") || node.id : ""; }

export function morph(old, fresh, free) {
  if (old.isEqualNode(fresh) || old.nodeName === "DIALOG" && old.open) return;
  if (old.nodeType !== 1) { if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue; return; }
  if (old.matches("time") && old.dateTime === fresh.dateTime) return;
  const loaded = old.dataset.part && old.dataset.part === fresh.dataset.part; // paceline.js has filled it
  const typed = old.matches("input, textarea, select");
  for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name) && !kept(old, name)) old.removeAttribute(name);
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) !== value && !kept(old, name)) old.setAttribute(name, value);
  }
  if (old.matches("#bulk") || loaded) return;
  if (typed && (old === document.activeElement || old.matches("textarea, [type=checkbox]"))) return;
  if (!free && old.hasAttribute("data-list") && !sameKeys(old, fresh)) return mergeList(old, fresh);
  children(old, fresh, free);
}

// Attributes that the script has set on a button are kept: a chosen row, an open menu, a button that waits for its answer.
function kept(node, name) {
  if (name === "disabled" && (node.dataset.busy || document.documentElement.classList.contains("is-gone"))) return true;
  if (name === "hidden" && node.matches("#bulk, [data-answers], [role=alert]")) return true;
  if (name === "aria-pressed" && node.matches("[data-dense]")) return true;
  return name === "class" && node.matches("tr.on, .nav.open, .dense") || name === "open";
}

export function children(old, fresh, free) {
  const known = new Map();
  for (const node of old.childNodes) if (keyOf(node)) known.set(keyOf(node), node);
  const staying = new Set([...fresh.childNodes].map(keyOf).filter(Boolean));
  let at = old.firstChild;
  const drop = () => { const next = at.nextSibling; at.remove(); at = next; };
  for (const wanted of [...fresh.childNodes]) {
    while (at && keyOf(at) && !staying.has(keyOf(at))) drop();
    const key = keyOf(wanted);
    const match = key ? known.get(key) : at && !keyOf(at) ? at : null;
    if (!match || match.nodeName !== wanted.nodeName) {
      old.insertBefore(document.importNode(wanted, true), at);
      continue;
    }
    if (match === at) at = at.nextSibling; else old.insertBefore(match, at);
    morph(match, wanted, free);
  }
  while (at) drop();
}

function sameKeys(old, fresh) {
  const keys = (node) => [...node.children].map(keyOf).join("\n");
  return keys(old) === keys(fresh);
}

// Existing rows are updated in place. Rows that came, went or moved wait behind a button, except in lists of runs, where
// new ones are expected on top.
function mergeList(old, fresh) {
  if (old.dataset.list === "new" && !pointedAt(old)) return children(old, fresh, true);
  const rows = new Map([...fresh.children].map((row) => [keyOf(row), row]));
  let changes = 0;
  for (const row of [...old.children]) {
    const wanted = rows.get(keyOf(row));
    if (wanted) morph(row, wanted, false); else changes += 1;
    rows.delete(keyOf(row));
  }
  offer(old, Math.max(1, changes + rows.size));
}

function pointedAt(node) { return node.contains(document.activeElement) || node.matches(":hover"); }

function offer(list, changes) {
  const table = list.closest("table") || list;
  let button = table.previousElementSibling;
  if (!button || !button.matches("[data-show]")) {
    button = document.createElement("button");
    button.type = "button";
    button.className = "sm changes";
    button.dataset.show = "yes";
    table.before(button);
  }
  button.textContent = changes === 1 ? "1 change, show" : `${changes} changes, show`;
}
