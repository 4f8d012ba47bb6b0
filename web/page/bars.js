// Pictures of use: bars and lines. The numbers beside them say the same, so programs that read the
// page aloud leave them out.

import { make, money, number, put } from './text.js';

const samples = 60;

// use shows the limits of a bucket in a cell: a line for each.
export function use(cell, limits) {
  while (cell.children.length > limits.length) cell.lastElementChild.remove();
  while (cell.children.length < limits.length) {
    const bar = make('span', 'bar', make('span', 'fill'));
    bar.setAttribute('aria-hidden', 'true');
    cell.append(make('div', 'limit', make('span', 'name'), bar, make('span', 'figures')));
  }
  limits.forEach((l, i) => {
    const [name, bar, figures] = cell.children[i].children;
    const max = l.max ?? l.most;
    put(name, l.name);
    const part = partOf(l.used, max);
    bar.firstElementChild.style.width = `${Math.min(100, 100 * part)}%`;
    bar.className = part >= 1 ? 'bar full' : part >= 0.8 ? 'bar high' : 'bar';
    const also = [];
    const currency = l.unit.endsWith('_micros') ? l.unit.slice(0, -'_micros'.length) : '';
    const amount = (n) => (currency ? money(n, currency) : number(n));
    if (l.held > 0) also.push(`${amount(l.held)} held`);
    if (l.debt > 0) also.push(`${amount(l.debt)} too many`);
    put(figures, `${amount(l.used)} of ${amount(max)}${currency ? '' : ` ${l.unit}`}${also.length > 0 ? `, ${also.join(', ')}` : ''}`);
  });
}

// partOf returns which part of a limit is used; of one that admits nothing all of it.
export const partOf = (used, max) => (max > 0 ? used / max : 1);

// fullest returns the largest part that is used of a bucket's limits.
export const fullest = (limits) => Math.max(0, ...limits.map((l) => partOf(l.used, l.max)));

const svg = (tag) => document.createElementNS('http://www.w3.org/2000/svg', tag);

// spark returns a line that grows to the right: the newest sample is at its end.
export function spark() {
  const picture = svg('svg');
  picture.setAttribute('class', 'spark');
  picture.setAttribute('viewBox', `0 0 ${samples - 1} 20`);
  picture.setAttribute('preserveAspectRatio', 'none');
  picture.setAttribute('aria-hidden', 'true');
  picture.append(svg('polyline'));
  return picture;
}

// draw draws samples between 0 and 1; larger ones are cut off.
export function draw(picture, values) {
  const first = samples - values.length;
  const points = values.map((v, i) => `${first + i},${(19 - 18 * Math.min(1, v)).toFixed(1)}`);
  picture.firstElementChild.setAttribute('points', points.join(' '));
}

// Memory keeps the last samples of what was seen lately.
export class Memory {
  #seen = new Map();

  // add adds a sample, and returns all of this key.
  add(key, value) {
    const values = this.#seen.get(key) ?? [];
    values.push(value);
    if (values.length > samples) values.shift();
    this.#seen.delete(key); // those that were not seen for longest come first
    this.#seen.set(key, values);
    return values;
  }

  // trim forgets all but the latest keys.
  trim(most) {
    for (const key of this.#seen.keys()) {
      if (this.#seen.size <= most) return;
      this.#seen.delete(key);
    }
  }

  get(key) {
    return this.#seen.get(key) ?? [];
  }
}
