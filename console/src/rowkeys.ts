// The keyboard shortcuts of lists.
const row = "main table.stack > tbody > tr:not(.opened)";

/** Moves through the rows of the lists of a page: j and k focus the link of a row, so that Enter opens it. x selects the row. Reports whether it used the key. */
export function listKey(key: string): boolean {
  const at = document.activeElement?.closest<HTMLTableRowElement>(row);
  if (key === "x") {
    const box = at?.querySelector<HTMLInputElement>("input[type=checkbox]:not(:disabled)");
    box?.click();
    return Boolean(box);
  }
  if (key !== "j" && key !== "k") return false;
  const all = [...document.querySelectorAll<HTMLTableRowElement>(row)];
  const from = at ? all.indexOf(at) : -1;
  const to = all[Math.max(0, Math.min(all.length - 1, from + (key === "j" ? 1 : -1)))];
  if (!to) return false;
  const target = to.querySelector<HTMLElement>("a[href], button.fold") ?? to;
  if (target === to) to.tabIndex = -1;
  target.focus({ preventScroll: true });
  to.scrollIntoView({ block: "nearest" });
  return true;
}
