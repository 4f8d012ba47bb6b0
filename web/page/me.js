// The page on which a key of the gateway sees what it may use, and what it has used.

import { use } from './bars.js';
import { Foreign, Problem, hasToken, poll, setToken } from './net.js';
import { rows } from './table.js';
import { clock, count, duration, list, make, money, number, put } from './text.js';

const every = 5000; // milliseconds
const $ = (id) => document.getElementById(id);

const head = () => {
  const cell = make('th');
  cell.scope = 'row';
  return cell;
};
const td = (className) => make('td', className);

// table returns a function that shows items as rows, and a note where there are none.
function table(id, { key, cells, fill, none }) {
  const titles = [...$(id).tHead.rows[0].cells].map((cell) => cell.textContent);
  const row = () => {
    const r = make('tr', '', ...cells());
    titles.forEach((title, i) => { r.children[i].dataset.title = title; }); // shown where the screen is narrow
    return r;
  };
  const show = rows($(id).tBodies[0], {
    key, make: row, update: (r, item) => fill(r.children, item),
  });
  return (items, note) => {
    show(items);
    $(id).hidden = items.length === 0;
    put($(`${id}-note`), items.length === 0 ? none : note ?? '');
  };
}

const limits = table('limits', {
  key: (l) => JSON.stringify([l.policy, l.name, l.team ?? false, l.at]),
  cells: () => [head(), td(), td(), td()],
  fill([name, used, whose, until], l) {
    put(name, l.policy);
    if (!used.firstChild) used.append(make('div'));
    use(used.firstChild, [l]);
    put(whose, l.team ? 'the team’s' : 'mine');
    put(until, l.paused ? `paused until ${clock(l.paused.until)}${l.paused.reason ? `: ${l.paused.reason}` : ''}` : l.every === 'total' ? 'never' : l.used > 0 ? clock(l.reset_at) : '');
  },
  none: 'No limit counts this key alone, or its team. Limits that other teams share are not shown.',
});

const spend = table('spend', {
  key: (r) => JSON.stringify([r.upstream, r.model]),
  cells: () => [head(), td('number'), td('number'), td('number')],
  fill([model, requests, tokens, cost], r) {
    put(model, `${r.upstream}/${r.model}`);
    put(requests, number(r.used.requests));
    put(tokens, number(r.used.prompt_tokens + r.used.answer_tokens));
    put(cost, r.currency ? money(r.used.cost_micros, r.currency) : '');
  },
  none: 'Nothing yet.',
});

const waiting = table('waiting', {
  key: (w) => w.at,
  cells: () => [head(), td('number')],
  fill([model, wait], w) {
    put(model, `${w.upstream}/${w.model}`);
    put(wait, duration(w.waited_ms));
  },
  none: 'None.',
});

const refusals = table('refusals', {
  key: (r) => r.index,
  cells: () => [head(), td(), td('number'), td()],
  fill([at, upstream, status, why], r) {
    put(at, clock(r.at));
    put(upstream, r.upstream);
    put(status, String(r.status));
    put(why, r.message);
  },
  none: 'None.',
});

function showSpend(answer) {
  $('spend-title').closest('section').hidden = !answer;
  if (!answer) return;
  const items = list(answer.rows).map((r) => ({ ...r, currency: answer.currency }));
  items.sort((a, b) => b.used.cost_micros - a.used.cost_micros || b.used.requests - a.used.requests);
  const sum = items.reduce((n, r) => n + r.used.cost_micros, 0);
  spend(items, `${answer.from} to ${answer.to} (${answer.zone})${answer.currency ? `; ${money(sum, answer.currency)} in all` : ''}.`);
}

function showModels(me) {
  const lines = [...list(me.aliases), ...list(me.upstreams).flatMap((u) => list(u.models).map((m) => `${u.name}/${m}`))];
  $('models').replaceChildren(...lines.map((line) => put(make('li'), line)));
}

function show(me) {
  $('away').hidden = true;
  $('login').hidden = true;
  $('mine').hidden = false;
  $('forget').hidden = false;
  const facts = [me.key];
  if (me.team) facts.push(`team ${me.team}`);
  if (me.until) facts.push(`valid until ${clock(me.until)}`);
  facts.push(`seen at ${clock(me.at)}`);
  $('facts').replaceChildren(...facts.map((f) => put(make('li'), f)));
  limits(list(me.limits).map((l, at) => ({ ...l, at })), `${count(list(me.limits).length, 'limit')}.`);
  showSpend(me.spend);
  waiting(list(me.waiting).map((w, at) => ({ ...w, at })), 'At this gateway; others do not tell theirs.');
  refusals(list(me.refusals).map((r, index) => ({ ...r, index })), 'By this gateway, the latest first.');
  showModels(me);
}

// login asks for the key.
function login(why) {
  $('mine').hidden = true;
  $('away').hidden = true;
  $('forget').hidden = true;
  $('login').hidden = false;
  $('facts').replaceChildren();
  put($('why'), why);
  $('token').focus();
}

// fail shows why there are no newer numbers. It returns how long to wait until the next try.
function fail(error) {
  if (error instanceof Problem && (error.status === 401 || error.status === 403)) {
    setToken('');
    login(`This key is not accepted: ${error.message}`);
    return Infinity;
  }
  put($('away'), error instanceof Foreign ? `Something between this page and the gateway answers in its place (${error.message}).`
    : error instanceof Problem ? `The gateway cannot say now: ${error.message} What is shown is older.` : 'The gateway does not answer. What is shown is older.');
  $('away').hidden = false;
  return every;
}

const pulse = poll({ path: () => 'v1/me', every, show, fail, when: hasToken });

$('login').addEventListener('submit', (e) => {
  e.preventDefault();
  setToken($('token').value);
  $('token').value = '';
  pulse.now();
});
$('forget').addEventListener('click', () => {
  pulse.stop();
  setToken('');
  login('');
});
if (hasToken()) pulse.now();
else login('');
