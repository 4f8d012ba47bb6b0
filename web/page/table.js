// Tables whose rows stay the same elements while what they show changes.

// rows shows items in the body of a table, in their order. make returns a row, and update makes it
// show an item, whatever it showed before: rows that are not needed any more are used again. While
// somebody is at a row, the rows that are there keep their places.
export function rows(body, { key, make, update }) {
  const all = new Map();
  const spare = [];
  return function show(items) {
    const held = body.contains(document.activeElement) || body.matches(':hover');
    const wanted = new Map();
    for (const item of items) wanted.set(key(item), item);
    for (const [k, row] of all) {
      if (wanted.has(k)) continue;
      all.delete(k);
      const focused = row.contains(document.activeElement);
      const next = row.nextElementSibling ?? row.previousElementSibling;
      row.remove();
      for (const button of row.querySelectorAll('button')) button.tabIndex = -1;
      spare.push(row);
      if (focused) next?.querySelector('button')?.focus();
    }
    const order = [];
    for (const [k, item] of wanted) {
      let row = all.get(k);
      if (!row) {
        row = spare.pop() ?? make();
        all.set(k, row);
      }
      update(row, item);
      order.push(row);
    }
    if (held) {
      body.append(...order.filter((row) => row.parentNode !== body));
      return;
    }
    order.forEach((row, i) => {
      if (body.children[i] !== row) body.insertBefore(row, body.children[i] ?? null);
    });
  };
}

// arrows lets the arrow keys, Home and End move between the buttons of the rows. Only one of them is
// in the order of the Tab key.
export function arrows(body) {
  const buttons = () => [...body.querySelectorAll('th button')];
  const choose = (button) => {
    for (const b of buttons()) b.tabIndex = b === button ? 0 : -1;
  };
  body.addEventListener('focusin', (e) => {
    if (e.target.matches('th button')) choose(e.target);
  });
  body.addEventListener('keydown', (e) => {
    const all = buttons();
    const i = all.indexOf(e.target);
    const to = { ArrowDown: i + 1, ArrowUp: i - 1, Home: 0, End: all.length - 1 }[e.key];
    if (i < 0 || to === undefined) return;
    e.preventDefault();
    all[Math.min(Math.max(to, 0), all.length - 1)].focus();
  });
  return function ensure() {
    const all = buttons();
    if (!all.some((b) => b.tabIndex === 0) && all.length > 0) all[0].tabIndex = 0;
  };
}
