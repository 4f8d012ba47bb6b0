// Text and numbers as people read them.

// What shows nothing, or changes how the text around it shows: control characters, those that turn
// the direction of writing, spaces that are none, and halves of characters.
const hidden = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/u;
const hiddenOrNot = new RegExp(`(${hidden.source})`, 'u');

// escaped returns a hidden character as the command line shows it.
function escaped(c) {
  const short = { '\x07': '\\a', '\b': '\\b', '\f': '\\f', '\n': '\\n', '\r': '\\r', '\t': '\\t', '\v': '\\v' };
  const n = c.codePointAt(0);
  const hex = (digits) => n.toString(16).padStart(digits, '0');
  if (short[c]) return short[c];
  if (n < 0x80) return `\\x${hex(2)}`;
  return n < 0x10000 ? `\\u${hex(4)}` : `\\U${hex(8)}`;
}

// put shows a text in an element. What the server sends may be anything: it never becomes HTML, and
// hidden characters are shown, marked, in place of themselves.
export function put(element, text) {
  const s = String(text ?? '');
  if (element.shown === s) return element;
  element.shown = s;
  if (!hidden.test(s)) {
    element.textContent = s;
    return element;
  }
  element.replaceChildren(...s.split(hiddenOrNot).filter((part) => part !== '').map((part) => {
    if (!hidden.test(part)) return part;
    const mark = document.createElement('span');
    mark.className = 'escaped';
    mark.textContent = escaped(part);
    return mark;
  }));
  return element;
}

// make returns an element with a class and a text, or with children.
export function make(tag, className, ...content) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  for (const c of content) {
    if (c instanceof Node) element.append(c);
    else if (c !== undefined) element.append(put(document.createElement('span'), c));
  }
  return element;
}

const digits = new Intl.NumberFormat('en');

export const number = (n) => digits.format(n);

export const count = (n, noun) => `${number(n)} ${noun}${n === 1 ? '' : 's'}`;

// money returns millionths of a currency, with more decimals where there is little.
export function money(micros, currency) {
  const amount = micros / 1e6;
  const decimals = amount > 0 && amount < 1 ? 6 : 2;
  if (/^[a-z]{3}$/.test(currency)) {
    return new Intl.NumberFormat('en', { style: 'currency', currency: currency.toUpperCase(), minimumFractionDigits: 2, maximumFractionDigits: decimals }).format(amount);
  }
  return `${new Intl.NumberFormat('en', { minimumFractionDigits: 2, maximumFractionDigits: decimals }).format(amount)} ${currency}`;
}

// units returns a number of units, whose name is a plural.
export const units = (n, unit) => `${number(n)} ${n === 1 ? unit.replace(/s$/, '') : unit}`;

// duration returns milliseconds in the two largest units.
export function duration(ms) {
  if (ms === null || ms === undefined) return 'never';
  if (ms < 1000) return `${Math.max(0, Math.round(ms))} ms`;
  const seconds = Math.round(ms / 1000);
  const parts = [];
  let rest = seconds;
  for (const [unit, size] of [['d', 86400], ['h', 3600], ['m', 60], ['s', 1]]) {
    if (rest >= size && parts.length < 2) parts.push(`${Math.floor(rest / size)}${unit}`);
    rest %= size;
  }
  return parts.join(' ');
}

// until returns the time from one instant to another.
export const until = (instant, now) => duration(Date.parse(instant) - now);

const two = (n) => String(n).padStart(2, '0');

// clock returns an instant as the time of day, with the day unless that is today's.
export function clock(instant) {
  const t = new Date(instant);
  const time = `${two(t.getHours())}:${two(t.getMinutes())}:${two(t.getSeconds())}`;
  const day = `${t.getFullYear()}-${two(t.getMonth() + 1)}-${two(t.getDate())}`;
  return t.toDateString() === new Date().toDateString() ? time : `${day} ${time}`;
}

// has reports whether one of the texts contains what is looked for, which is in lower case.
export const has = (wanted, ...texts) => wanted === '' || texts.some((s) => String(s ?? '').toLowerCase().includes(wanted));

// list returns an array, whatever the server sent.
export const list = (x) => (Array.isArray(x) ? x : []);
