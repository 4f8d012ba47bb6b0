// Questions to the server.

const storage = 'drawgate-token';
const patience = 20_000; // milliseconds for an answer: some have to wait for a slow store

let token = '';
try {
  token = sessionStorage.getItem(storage) ?? '';
} catch {
  // the browser keeps nothing for this page: then the token is lost when the page is loaded again
}

// hasToken reports whether there is an access token.
export const hasToken = () => token !== '';

// setToken uses an access token from now on; '' forgets it.
export function setToken(t) {
  token = t.trim();
  try {
    if (token === '') sessionStorage.removeItem(storage);
    else sessionStorage.setItem(storage, token);
  } catch {
    // as above
  }
}

// Problem is an answer that says why there is no answer.
export class Problem extends Error {
  constructor(status, code, detail) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

// Foreign is an answer that is not one of this server: of a proxy in between, for example. Its text
// says what it is.
export class Foreign extends Error {}

const between = [401, 403, 407, 502, 503, 504]; // what proxies answer for themselves

// ask returns the server's answer. The error is a Problem, Foreign, or that there was no answer.
export async function ask(path, { signal, body, text } = {}) {
  const options = {
    method: body === undefined ? 'GET' : 'POST', cache: 'no-store', redirect: 'manual', referrerPolicy: 'no-referrer',
    signal: AbortSignal.any([AbortSignal.timeout(patience), ...(signal ? [signal] : [])]),
    headers: {},
  };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers['Content-Type'] = 'application/json';
  }
  if (/[^\x21-\x7e]/.test(token)) throw new Problem(401, 'unauthorized', 'The access token has characters that no token has.');
  if (token !== '') options.headers.Authorization = `Bearer ${token}`;
  const res = await fetch(path, options);
  if (res.type === 'opaqueredirect') throw new Foreign('a redirect');
  const answer = await res.text();
  const type = res.headers.get('Content-Type') ?? '';
  const foreign = new Foreign([`status ${res.status}`, type.split(';')[0]].filter(Boolean).join(', '));
  if (!res.ok && !(path.endsWith('readyz') && type.startsWith('application/json'))) {
    let p = {};
    if (type.startsWith('application/problem+json')) p = parse(answer, foreign);
    else if (between.includes(res.status)) throw foreign;
    throw new Problem(res.status, p.code, p.detail ?? `The server answered ${res.status}.`);
  }
  if (text && type.startsWith('text/html')) throw foreign;
  return text ? answer : parse(answer, foreign);
}

function parse(answer, foreign) {
  try {
    return JSON.parse(answer);
  } catch {
    throw foreign;
  }
}

// poll asks again and again while the page is visible and when() is true, and never twice at the same
// time. path returns what to ask, show gets the answer, and fail the error: it returns how many milliseconds
// to wait before the next try, or nothing for the usual time.
export function poll({ path, every, show, fail, text, when = () => true }) {
  let timer = 0;
  let running = null;
  function stop() {
    clearTimeout(timer);
    running?.abort();
    running = null;
  }
  async function now() {
    stop();
    if (document.hidden || !when()) return;
    const mine = new AbortController();
    running = mine;
    let next = every;
    let answer;
    let error;
    try {
      answer = await ask(path(), { signal: mine.signal, text });
    } catch (e) {
      error = e;
    }
    if (running !== mine) return;
    running = null;
    if (error) next = fail(error) ?? every;
    if (next !== Infinity) timer = setTimeout(now, next);
    if (!error) show(answer);
  }
  document.addEventListener('visibilitychange', () => (document.hidden ? stop() : now()));
  return { now, stop };
}
