// The page: which part shows which answer of the server, and when it is asked for.

import { Memory, draw, fullest, spark, use } from './bars.js';
import { Foreign, ask, hasToken, poll, setToken } from './net.js';
import { arrows, rows } from './table.js';
import { clock, count, duration, has, list, make, money, number, put, units, until } from './text.js';

const few = 20; // rows that a part shows at first
const news = 10; // and those parts that stand above the others
const some = 200; // after "Show more"
const many = 1000; // the most that the server sends
const often = 500; // milliseconds between two questions for use, which the server reads once a second
const soon = 1000; // for who waits
const seldom = 5000; // and for the rest
const rarely = 60_000; // for what takes long to read
const again = 2000; // after no answer
const absentFor = 30_000; // after an answer that this server does not have something

const $ = (id) => document.getElementById(id);
const state = { filter: '', sort: 'use', down: true, away: 0, refused: false };
const polls = [];

// named gives the elements of a table the roles that they have anyway: on a narrow screen they are
// not laid out as a table, and browsers take the roles away then.
function named(element) {
  const roles = { TABLE: 'table', THEAD: 'rowgroup', TBODY: 'rowgroup', TR: 'row', TD: 'cell' };
  const role = element.tagName === 'TH' ? { col: 'columnheader', row: 'rowheader' }[element.scope] : roles[element.tagName];
  if (role) element.setAttribute('role', role);
}

// part is a section of the page. Its table shows what items makes of the last answer; cells makes
// the elements of a row, of which the first is its head, and fill fills them with an item. At first
// it shows only a few rows; enlarge is called when somebody wants more, and total returns how many
// there are if the answer may not have all of them.
function part({ id, title, key, cells, fill, items, enlarge, total }) {
  const section = $(id);
  const table = section.querySelector('table');
  const body = table.querySelector('tbody');
  const titles = [...table.querySelectorAll('thead th')].map((th) => th.textContent);
  for (const element of [table, ...table.querySelectorAll('*')]) named(element);
  const link = make('a', '', make('span', '', title), make('span', 'count'));
  link.href = `#${id}`;
  const place = make('li', '', link);
  place.hidden = true;
  $('parts').append(place);
  const more = make('button', 'more');
  more.type = 'button';
  more.hidden = true;
  more.addEventListener('click', () => {
    self.limit = self.limit < some ? some : many;
    self.render();
    enlarge?.();
  });
  section.append(more);
  const show = rows(body, {
    key,
    make: () => {
      const row = document.createElement('tr');
      row.append(...cells(row));
      [...row.children].forEach((cell, i) => {
        if (i > 0) cell.dataset.title = titles[i]; // what a narrow screen shows in place of the column's head
        named(cell);
      });
      named(row);
      return row;
    },
    update: (row, item) => {
      row.item = item;
      fill([...row.children], item);
    },
  });
  const self = {
    section, body, answer: undefined, limit: few, shown: 0, total: 0,
    render() {
      if (self.answer === undefined) return;
      const all = items(self.answer);
      self.total = Math.max(all.length, total?.(self.answer) ?? 0);
      self.shown = Math.min(all.length, self.limit);
      show(all.slice(0, self.limit));
      table.hidden = self.shown === 0;
      more.hidden = self.total <= self.shown || self.limit >= many;
      put(more, `Show ${self.total <= some || self.limit >= some ? 'all' : number(some)}${self.total > many && self.limit >= some ? ` up to ${number(many)}` : ''}`);
    },
    set(answer) {
      self.answer = answer;
      self.at = answer.at ?? new Date();
      section.classList.remove('old');
      self.visible(true);
      absent(title);
      self.render();
    },
    visible(yes) {
      section.hidden = !yes;
      place.hidden = !yes;
    },
    // badge shows a number in the link to the part.
    badge: (n) => put(link.lastElementChild, n > 0 ? ` ${number(n)}` : ''),
    // of says how many rows of how many are shown.
    of: (noun) => (self.shown < self.total ? `${number(self.shown)} of ${count(self.total, noun)}` : count(self.shown, noun)),
    note: (text) => put(section.querySelector('.note'), text),
    // fail says why there is no answer, and returns when to try again.
    fail(error) {
      const wait = failed(error);
      if (error.status === 404 || error.status === 501) {
        self.visible(false);
        absent(title, error.status === 404 ? 'this server does not have it' : error.message);
        return absentFor;
      }
      if (error.status === 401 || error.status === undefined) return wait;
      self.visible(true);
      absent(title);
      const old = self.answer !== undefined && error.status !== 403;
      section.classList.toggle('old', old);
      table.hidden = self.shown === 0;
      const reason = error.code === 'store_unavailable' && health.store?.status === 'unavailable' ? 'The store is unavailable' : error.message;
      self.note(error.status === 403 ? `This access token may not see this: ${error.message}.` : `${reason}.${old ? ` What is shown is from ${clock(self.at)}.` : ''}`);
      return error.status === 403 ? absentFor : wait;
    },
  };
  return self;
}

const head = (...content) => {
  const th = make('th', '', ...content);
  th.scope = 'row';
  return th;
};
const td = (className) => make('td', className);
const name = () => make('span', 'name');

// failed notes that a question was not answered, and returns when to ask again.
function failed(error) {
  if (error.status === undefined) {
    if (state.away === 0) state.away = Date.now();
    $('away').hidden = false;
    const what = error instanceof Foreign ? `Something else answers in place of the server since ${clock(state.away)}, perhaps a proxy (${error.message})` : `The server has not answered since ${clock(state.away)}`;
    put($('away'), `${what}. What is shown is from before. Trying again every ${again / 1000} s.`);
    document.body.classList.add('stale');
    return again;
  }
  answered();
  if (error.status !== 401) return undefined;
  if (!state.refused) {
    state.refused = true;
    put($('why'), hasToken() ? `The server refused the access token: ${error.message}.` : 'This server needs an access token.');
    $('login').hidden = false;
    $('forget').hidden = true;
    for (const p of polls) p.stop();
    $('token').focus();
  }
  return Infinity;
}

// unanswered says why there is no answer of the server.
const unanswered = (error) => (error instanceof Foreign ? `Something else answers in place of the server (${error.message}).` : 'The server does not answer.');

// answered notes that the server is there.
function answered() {
  if (state.away === 0) return;
  state.away = 0;
  $('away').hidden = true;
  put($('away'), '');
  document.body.classList.remove('stale');
  askAll();
}

const missing = new Map();

// absent lists what this server does not have, and why; without a reason it has it.
function absent(title, reason) {
  if (missing.get(title) === reason) return;
  if (reason === undefined) missing.delete(title);
  else missing.set(title, reason);
  $('absent').hidden = missing.size === 0;
  $('absent').querySelector('ul').replaceChildren(...[...missing].map(([t, r]) => make('li', '', `${t}: ${r}.`)));
}

// Buckets.

const identity = (b) => JSON.stringify([b.policy, b.tenant ?? '', b.key]);
const past = new Memory();

// Refusals. They are asked for more often than most of the rest: they are news.

const why = (r) => ({
  limited: `${r.limit}: asked for ${units(r.asked ?? 0, r.unit ?? 'units')}, ${number(r.remaining)} of ${number(r.max ?? 0)} left`,
  paused: 'a pause', unavailable: 'the store was unavailable', queued: 'others waited before it',
}[r.reason] ?? r.reason);

const refusals = part({
  id: 'refusals', title: 'Refusals', key: (r) => JSON.stringify([r.policy, r.tenant ?? '', r.key, r.limit ?? '', r.reason]),
  items: (answer) => list(answer.refusals).filter((r) => has(state.filter, r.policy, r.tenant, r.key, r.limit)),
  total: (answer) => (state.filter === '' ? answer.total : 0),
  enlarge: () => refused.now(),
  cells: () => [head(name(), make('span', 'tenant')), td(), td('number'), td(), td()],
  fill([key, policy, n, last, by], r) {
    put(key.firstElementChild, r.key);
    put(key.lastElementChild, r.tenant ? `of tenant ${r.tenant}` : '');
    put(policy, r.policy);
    put(n, number(r.count));
    put(last, clock(r.last));
    put(by, `${why(r)}${r.fallback && r.reason === 'limited' ? ' (this server’s own count)' : ''}`);
  },
});

refusals.limit = news;

function showRefusals(answer) {
  refusals.set(answer);
  const all = list(answer.refusals);
  refusals.badge(answer.total);
  refusals.note(all.length === 0 ? `Nothing was refused since ${clock(Date.parse(answer.at) - (health.uptime_ms ?? 0))}, when this server started.`
    : `${refusals.of('line')}, the latest first: one for each bucket and limit that refused.${answer.dropped ? ' Older ones were dropped.' : ''}`);
}

const buckets = part({
  id: 'buckets', title: 'Buckets in use', key: identity,
  total: (answer) => answer.total,
  enlarge: () => usage.now(),
  items: (answer) => sorted(list(answer.buckets).filter((b) => has(state.filter, b.policy, b.tenant, b.key))),
  cells(row) {
    const button = make('button', 'key');
    button.type = 'button';
    button.tabIndex = -1;
    button.addEventListener('click', () => detail(row.item));
    const first = head(button, make('span', 'tenant'));
    const picture = td('wide');
    picture.append(spark());
    return [first, td(), td(), picture, td('wide number'), td()];
  },
  fill([key, policy, used, picture, open, how], b) {
    put(key.firstElementChild, b.key);
    put(key.lastElementChild, b.tenant ? `of tenant ${b.tenant}` : '');
    put(policy, b.policy);
    use(used, list(b.limits));
    draw(picture.firstElementChild, past.get(identity(b)));
    put(open, number(b.open ?? 0));
    const words = [];
    if (b.paused_until) words.push(`paused until ${clock(b.paused_until)}`);
    if (b.fallback) words.push('this server’s own count');
    if (words.length === 0 && fullest(list(b.limits)) >= 1) words.push('used up');
    put(how, words.join(', '));
    how.className = words.length > 0 ? 'warn' : '';
  },
});
const reachable = arrows(buckets.body);

const orders = {
  use: (a, b) => fullest(list(a.limits)) - fullest(list(b.limits)),
  key: (a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0),
  policy: (a, b) => (a.policy < b.policy ? -1 : a.policy > b.policy ? 1 : orders.key(a, b)),
  open: (a, b) => (a.open ?? 0) - (b.open ?? 0),
};

function sorted(all) {
  const order = orders[state.sort];
  return all.sort((a, b) => (state.down ? order(b, a) : order(a, b)));
}

function showBuckets(answer) {
  if (answer.at !== buckets.answer?.at || answer !== buckets.answer) {
    for (const b of list(answer.buckets)) {
      if (answer.at !== past.at) past.add(identity(b), fullest(list(b.limits)));
    }
    past.at = answer.at;
    past.trim(2 * many);
  }
  buckets.set(answer);
  reachable();
  noteBuckets();
}

function noteBuckets() {
  const answer = buckets.answer;
  if (!answer) return;
  const shown = buckets.shown;
  const words = [shown === 0 ? 'No bucket is in use' : `${buckets.of('bucket')}, as of ${clock(answer.at)}`];
  if (state.filter !== '') words[0] += `, with “${$('filter').value}” in its policy, tenant or key`;
  if (shown < buckets.total && !answer.partial) words.push(`These are the most used ones: filter to see others${state.sort === 'use' ? '' : '. Only these are sorted'}`);
  if (answer.partial) words.push('There are too many buckets, or reading them takes too long: some are missing');
  buckets.note(`${words.join('. ')}.`);
  buckets.badge(buckets.total);
}

for (const button of document.querySelectorAll('[data-sort]')) {
  button.addEventListener('click', () => {
    const by = button.dataset.sort;
    state.down = state.sort === by ? !state.down : by === 'use' || by === 'open';
    state.sort = by;
    for (const other of document.querySelectorAll('[data-sort]')) {
      const cell = other.closest('th');
      if (other === button) cell.ariaSort = state.down ? 'descending' : 'ascending';
      else cell.removeAttribute('aria-sort');
    }
    buckets.render();
    noteBuckets();
  });
}

// detail shows what the server says about a bucket.
let details = 0; // how often a bucket was opened: an answer for an earlier one comes too late

async function detail(b) {
  const mine = ++details;
  const box = $('detail');
  const note = box.querySelector('.note');
  const body = box.querySelector('tbody');
  put($('detail-title'), `${b.policy}: ${b.key}`);
  put(note, 'Reading …');
  body.replaceChildren();
  box.showModal();
  if (b.policy.endsWith('~shadow')) {
    put(note, 'Rules in shadow count here, and refuse nobody. The list shows what is used.');
    return;
  }
  try {
    const s = await ask('v1/status', { body: { policy: b.policy, tenant: b.tenant, key: b.key } });
    if (mine !== details) return;
    const now = Date.parse(s.at);
    const words = [`As of ${clock(s.at)}, ${count(s.open ?? 0, 'reservation')}.`];
    if (s.paused) words.push(`Paused for ${until(s.paused.until, now)}${s.paused.reason ? `: ${s.paused.reason}` : ''}.`);
    if (s.take?.fallback) words.push('The store is unavailable: these are the numbers of this server.');
    put(note, words.join(' '));
    body.replaceChildren(...list(s.limits).map((l) => {
      const row = document.createElement('tr');
      const cell = td();
      use(cell, [{ ...l, max: l.most }]);
      const kind = [l.kind, l.every, l.zone, l.window_ms ? duration(l.window_ms) : ''].filter(Boolean).join(', ');
      row.append(head(l.name), make('td', '', kind), cell, make('td', 'number', number(l.remaining)), make('td', 'number', l.every === 'total' ? 'never' : l.used > 0 ? until(l.reset_at, now) : ''));
      return row;
    }));
  } catch (error) {
    if (mine === details) put(note, error.status === undefined ? unanswered(error) : `${error.message}.`);
  }
}

// Waiting callers.

const reasons = { limited: 'a limit', held: 'reservations to end', queued: 'the first to be decided', paused: 'a pause to end', unavailable: 'the store to be back' };

const waiting = part({
  id: 'waiting', title: 'Waiting callers', key: identity,
  items: (answer) => list(answer.lines).filter((l) => has(state.filter, l.policy, l.tenant, l.key)),
  cells: () => [head(name(), make('span', 'tenant')), td(), td('number'), td('number'), td('number'), td()],
  fill([key, policy, n, longest, next, why], l) {
    put(key.firstElementChild, l.key);
    put(key.lastElementChild, l.tenant ? `of tenant ${l.tenant}` : '');
    put(policy, l.policy);
    put(n, number(l.waiting));
    put(longest, duration(l.longest_ms));
    put(next, l.next_ms > 0 ? duration(l.next_ms) : 'now');
    const line = l.others > 0 ? `; ${number(l.others)} of other processes in front, for up to ${duration(l.oldest_ms)}` : '';
    put(why, `${reasons[l.reason] ?? l.reason ?? ''}${l.limit && l.reason !== 'unavailable' ? `: ${l.limit}` : ''}${line}`);
  },
});
waiting.limit = news;

// Upstreams and their circuits.

const upstreams = part({
  id: 'upstreams', title: 'Upstreams', key: (u) => u.name,
  items: (answer) => list(answer.upstreams).filter((u) => has(state.filter, u.name, u.provider, u.owner, ...list(u.quotas).map((q) => q.policy))),
  cells: () => [head(name(), make('span', 'tenant')), make('td', '', make('div'), make('div')), td('number'), td('number'), td()],
  fill([upstream, circuit, going, wait, quotas], u) {
    put(upstream.firstElementChild, u.name);
    put(upstream.lastElementChild, `${u.provider}, owner ${u.owner}`);
    const c = u.calls;
    put(circuit.firstElementChild, c ? `${c.circuit}${c.retry_after_ms > 0 ? `, a call may try in ${duration(c.retry_after_ms)}` : ''}` : 'not known');
    circuit.className = c && (c.circuit !== 'closed' || c.circuits) ? 'bad' : '';
    put(circuit.lastElementChild, list(c?.circuits).map((k) => `${[k.model ?? 'connections', k.caller].filter(Boolean).join(', ')}: ${k.state}`).join('; '));
    put(going, c ? number(c.under_way) : '');
    put(wait, c ? number(c.waiting) : '');
    const all = list(u.quotas);
    while (quotas.children.length > all.length) quotas.lastElementChild.remove();
    while (quotas.children.length < all.length) quotas.append(make('div', 'quota', make('div', 'name'), make('div'), make('div', 'warn')));
    all.forEach((q, i) => {
      const [title, bars, trouble] = quotas.children[i].children;
      put(title, `${q.policy} (${list(q.models).join(', ')})`);
      use(bars, list(q.status?.limits).map((l) => ({ ...l, max: l.most })));
      const p = q.status?.paused;
      put(trouble, q.error?.detail ?? (p ? `paused until ${clock(p.until)}${p.reason ? `: ${p.reason}` : ''}` : ''));
    });
  },
});

// Spend of this month, by key, and what it comes to by the month's end if it goes on like this.

const spend = part({
  id: 'spend', title: 'Spend', key: (r) => JSON.stringify([r.team ?? '', r.key ?? '']),
  items: (answer) => list(answer.rows).filter((r) => has(state.filter, r.team, r.key))
    .sort((a, b) => b.used.cost_micros - a.used.cost_micros || b.used.requests - a.used.requests),
  cells: () => [head(name(), make('span', 'tenant')), td('number'), td('number'), td('number'), td('number')],
  fill([key, requests, tokens, cost, end], r) {
    put(key.firstElementChild, r.key);
    put(key.lastElementChild, r.team ? `of team ${r.team}` : '');
    put(requests, number(r.used.requests));
    put(tokens, number(r.used.prompt_tokens + r.used.answer_tokens));
    const { currency, gone } = spend.answer;
    put(cost, currency ? money(r.used.cost_micros, currency) : '');
    put(end, currency && gone > 0 ? money(r.used.cost_micros / gone, currency) : '');
  },
});
spend.limit = news;

// goneOf returns which part of the month has gone at an instant: nothing is foretold on its first day.
function goneOf(answer, now) {
  const first = Date.parse(answer.from);
  const next = new Date(first);
  next.setUTCMonth(next.getUTCMonth() + 1);
  return now - first < 86_400_000 ? 0 : Math.min(1, (now - first) / (next - first));
}

function showSpend(answer) {
  answer.gone = goneOf(answer, Date.now());
  spend.set(answer);
  const { used, open } = list(answer.rows).reduce((sum, r) => ({ used: sum.used + r.used.cost_micros, open: sum.open + r.open.cost_micros }), { used: 0, open: 0 });
  const words = [`${answer.from} to ${answer.to} (${answer.zone})`];
  if (answer.currency) words.push(`${money(used, answer.currency)} in all${open > 0 ? `, and at most ${money(open, answer.currency)} under way` : ''}`);
  if (answer.currency && answer.gone > 0) words.push(`${money(used / answer.gone, answer.currency)} by the end of the month, if it goes on like this`);
  spend.note(`${words.join('; ')}.`);
}

// Incidents of the gateway.

const incidents = part({
  id: 'incidents', title: 'Incidents', key: (i) => i.id,
  items: (answer) => list(answer.incidents).filter((i) => has(state.filter, i.upstream, i.model, i.summary, i.severity)),
  cells: () => [head(), td(), td(), td('number'), make('td', '', make('div'), make('ul'))],
  fill([at, upstream, severity, n, what], i) {
    put(at, clock(i.at));
    put(upstream, [i.upstream, i.model].filter(Boolean).join(', '));
    put(severity, i.severity);
    severity.className = i.severity === 'error' ? 'bad' : 'warn';
    put(n, number(i.count));
    put(what.firstElementChild, i.summary);
    const lines = list(i.diagnosis);
    if (what.lastElementChild.children.length !== lines.length) what.lastElementChild.replaceChildren(...lines.map(() => make('li')));
    lines.forEach((line, k) => put(what.lastElementChild.children[k], line));
  },
});

incidents.limit = news;

// Policies, and how each is decided right now.

let health = {};
const fallbacks = { closed: 'every take is refused', share: 'this server admits its share', open: 'every take is admitted' };
const notApplied = (s) => (list(s.not_applied).length > 0 ? `; not applied: ${list(s.not_applied).join(', ')} (fallback: open)` : '');
const endless = 2 ** 31 * 1000 - 1000; // the end that the server names where there is none

const policies = part({
  id: 'policies', title: 'Policies', key: (p) => p.name,
  items: (answer) => list(answer.policies).filter((p) => has(state.filter, p.name, ...list(p.limits).map((l) => l.name))),
  cells: () => [head(), td('lines'), td(), td('wide')],
  fill([policy, limits, mode, fallback], p) {
    put(policy, p.name);
    const all = list(p.limits);
    if (limits.of !== JSON.stringify(all)) {
      limits.of = JSON.stringify(all);
      limits.replaceChildren(...all.map((l) => make('div', '', `${l.name}: ${l.description}${l.most < (l.burst || l.amount) ? `, ${number((l.burst || l.amount) - l.most)} kept back` : ''}`)));
    }
    const now = list(health.states).find((s) => s.name === p.name);
    const words = [];
    if (p.disabled_until) words.push(Date.parse(p.disabled_until) >= endless ? 'off' : `off until ${clock(p.disabled_until)}`);
    if (p.shadow) words.push('shadow: refuses nothing');
    if (now?.status === 'degraded' || now?.status === 'unavailable') words.push(`store unavailable: ${fallbacks[now.fallback] ?? fallbacks.closed}${notApplied(now)}`);
    put(mode, words.join(', ') || 'enforced');
    mode.className = words.length > 0 ? 'warn' : '';
    put(fallback, now?.fallback || p.fallback || '');
  },
});

// Shadows: how often each would have decided otherwise, from the metrics.

const shadows = part({
  id: 'shadows', title: 'Shadows', key: (s) => s.policy,
  items: (answer) => answer.filter((s) => has(state.filter, s.policy)),
  cells: () => [head(), td('number'), td('number')],
  fill([policy, refuse, allow], s) {
    put(policy, s.policy);
    put(refuse, number(s.would_refuse ?? 0));
    put(allow, number(s.would_allow ?? 0));
  },
});

const divergence = /^rate_limit_shadow_divergence_total\{(.*)\} (\S+)$/;

// parseShadows reads the metrics' text.
function parseShadows(text) {
  const all = new Map();
  for (const line of text.split('\n')) {
    const found = divergence.exec(line);
    if (!found) continue;
    const labels = {};
    for (const [, label, value] of found[1].matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)) {
      labels[label] = value.replace(/\\(.)/g, (_, c) => (c === 'n' ? '\n' : c));
    }
    const s = all.get(labels.policy) ?? { policy: labels.policy };
    s[labels.direction] = (s[labels.direction] ?? 0) + Number(found[2]);
    all.set(labels.policy, s);
  }
  return [...all.values()].sort((a, b) => (a.policy < b.policy ? -1 : 1));
}

// History: read when somebody asks, because it may be long.

const history = part({
  id: 'history', title: 'History', key: (e) => e.n,
  items: (answer) => answer.filter((e) => has(state.filter, e.policy, e.tenant, e.key, e.op, e.id, pairs(e.labels))),
  cells: () => [head(), td(), td(), td('name'), td(), td('wide'), td('wide name')],
  fill([at, op, policy, key, units, labels, id], e) {
    put(at, clock(e.at));
    put(op, e.op);
    put(policy, e.policy);
    put(key, e.tenant ? `${e.key} of tenant ${e.tenant}` : e.key);
    put(units, pairs(e.units));
    put(labels, pairs(e.labels));
    put(id, e.id ?? '');
  },
});

const newest = 200; // events that are shown
history.limit = newest;

const pairs = (o) => Object.entries(o ?? {}).map(([k, v]) => `${k}=${v}`).join(' ');
const since = (ms) => new Date(Date.now() - ms).toISOString();

let reading = new AbortController(); // the last reading: an earlier one is not waited for

async function readHistory() {
  reading.abort();
  const mine = new AbortController();
  reading = mine;
  history.note('Reading …');
  try {
    const text = await ask(`v1/history?${query({ since: since($('since').value), last: newest })}`, { text: true, signal: mine.signal });
    if (mine !== reading) return;
    const events = text.split('\n').filter(Boolean).map((line, n) => ({ ...JSON.parse(line), n })).reverse();
    history.body.replaceChildren();
    history.set(events);
    history.note(events.length === 0 ? 'Nothing was taken.' : `${count(events.length, 'event')}, the newest first${events.length === newest ? '; older ones are not shown' : ''}.`);
  } catch (error) {
    if (mine !== reading) return;
    history.fail(error);
    if (error.status === undefined) history.note(unanswered(error));
  }
}
$('load').addEventListener('click', readHistory);

// The head of the page.

function showHealth(h) {
  health = h;
  const facts = [];
  const fact = (className, text) => facts.push(make('li', className, text));
  const store = h.store?.status === 'ok' ? `store ok, ${number(h.store.latency_ms)} ms` : 'store unavailable';
  fact(h.status === 'ok' ? 'good' : 'bad', h.store?.status === 'ok' ? { ok: 'decides', unavailable: 'stopping' }[h.status] ?? h.status : 'decides by fallbacks');
  fact(h.store?.status === 'ok' ? 'good' : 'bad', store);
  fact('', `${number(h.waiting ?? 0)} waiting`);
  fact('', `up ${duration(h.uptime_ms)}`);
  $('facts').replaceChildren(...facts);
  outage(h);
  policies.render();
}

let unavailable = 0; // since when the store is, as far as this page has seen

// outage says what the fallback of each policy does while the store is unavailable.
function outage(h) {
  const away = h.store !== undefined && h.store.status !== 'ok';
  $('outage').hidden = !away;
  if (!away) {
    unavailable = 0;
    return;
  }
  unavailable ||= Date.now();
  const words = [];
  for (const [mode, what] of Object.entries(fallbacks)) {
    const those = list(h.states).filter((s) => (s.fallback ?? 'closed') === mode && s.status !== 'disabled');
    const alike = those.filter((s) => list(s.not_applied).length === 0).map((s) => s.name);
    if (alike.length > 0) words.push(make('li', '', `${alike.join(', ')}: ${what} (fallback: ${mode}).`));
    for (const s of those.filter((s) => list(s.not_applied).length > 0)) words.push(make('li', '', `${s.name}: ${what} (fallback: ${mode})${notApplied(s)}.`));
  }
  const text = `The store has been unavailable since ${clock(unavailable)} or longer. Until it is back, ${words.length > 0 ? 'the fallback of each policy decides:' : 'fallbacks decide.'}`;
  $('outage').replaceChildren(make('p', '', text), make('ul', '', ...words), make('p', '', 'What is grey was read before that.'));
}

// What is asked, and how often.

function watch(part, path, every, show, text) {
  const p = poll({
    path: typeof path === 'string' ? () => path : path, every, text,
    show(answer) {
      answered();
      part.note('');
      show(answer);
    },
    fail: (error) => part.fail(error),
  });
  polls.push(p);
  return p;
}

// query returns the parameters that have a value.
const query = (parameters) => new URLSearchParams(Object.entries(parameters).filter(([, v]) => v !== '')).toString();

const usage = watch(buckets, () => `v1/usage?${query({ limit: buckets.limit, match: state.filter, tenant: $('tenant').value })}`, often, showBuckets);
const refused = watch(refusals, () => `v1/refusals?${query({ limit: state.filter === '' ? refusals.limit : many, tenant: $('tenant').value })}`, soon, showRefusals);
watch(waiting, 'v1/waiting', soon, (answer) => {
  waiting.set(answer);
  const callers = list(answer.lines).reduce((n, l) => n + l.waiting, 0);
  waiting.badge(callers);
  waiting.note(callers === 0 ? 'Nobody is waiting.' : `${count(callers, 'caller')}. Those whose bucket most callers wait for come first: ${waiting.of('bucket')}.`);
});
let found; // incidents are asked for only where there is a gateway
watch(upstreams, 'v1/upstreams', seldom, (answer) => {
  const gateway = list(answer.upstreams).length > 0;
  upstreams.set(answer);
  upstreams.visible(gateway);
  absent('Upstreams and incidents', gateway ? undefined : 'there is no gateway in this process');
  if (gateway && !found) {
    watch(spend, 'v1/spend?by=team,key', rarely, showSpend).now();
    found = watch(incidents, 'v1/incidents', seldom, (answer) => {
      incidents.set(answer);
      incidents.badge(list(answer.incidents).length);
      incidents.note(list(answer.incidents).length === 0 ? 'There are none.' : incidents.shown < incidents.total ? `${incidents.of('incident')}, the newest first.` : '');
    });
    found.now();
  }
});
watch(policies, 'v1/policies', seldom, (answer) => policies.set(answer));
watch(shadows, 'metrics', 3 * seldom, (text) => {
  const shadowed = new Set(list(policies.answer?.policies).filter((p) => p.shadow).map((p) => p.name));
  const all = parseShadows(text).filter((s) => shadowed.has(s.policy) || s.would_refuse > 0 || s.would_allow > 0);
  shadows.set(all);
  shadows.visible(all.length > 0);
  shadows.note('Since this server started. What a shadow decides is not enforced.');
}, true);
watch(history, () => `v1/history?${query({ since: since(1000), last: 1 })}`, Infinity, () => {
  history.visible(true);
  absent('History');
}, true);
const pulse = poll({ path: () => 'readyz', every: seldom, show(h) { answered(); showHealth(h); }, fail: failed });
polls.push(pulse);

function askAll() {
  for (const p of polls) p.now();
}

// Filter, keyboard, token.

$('filter').addEventListener('input', () => {
  state.filter = $('filter').value.toLowerCase();
  for (const p of [refusals, buckets, waiting, upstreams, spend, incidents, policies, shadows, history]) p.render();
  reachable();
  noteBuckets();
  usage.now();
  refused.now();
});

$('tenant').addEventListener('change', () => {
  usage.now();
  refused.now();
});

document.addEventListener('keydown', (e) => {
  if (e.key === '/' && !e.ctrlKey && !e.metaKey && !e.altKey && !e.target.closest('input, select, dialog')) {
    e.preventDefault();
    $('filter').focus();
    $('filter').select();
  }
});

function useToken(token) {
  setToken(token);
  state.refused = false;
  $('token').value = '';
  $('login').hidden = true;
  $('forget').hidden = !hasToken();
  askAll();
}

$('login').addEventListener('submit', (e) => {
  e.preventDefault();
  useToken($('token').value);
});
$('forget').addEventListener('click', () => {
  location.reload();
  setToken('');
});

for (const section of document.querySelectorAll('main > section')) {
  const place = document.querySelector(`#parts a[href="#${section.id}"]`)?.parentElement;
  if (place) $('parts').append(place);
}
put($('host'), location.host);
$('forget').hidden = !hasToken();
askAll();
