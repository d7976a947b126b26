// The page of a node's agent: it shows what /v1/events tells. Nothing is kept but the token, in this
// tab's sessionStorage, if somebody gives one.

const $ = id => document.getElementById(id);
const silenceMax = 3000; // ms: the agent tells something twice a second
const tokenKey = 'quorate-token';
let state = null; // the status that was told last
let heardAt = 0; // when, by this browser's clock
let skew = 0; // of this browser's clock to the agent's, ms
let trouble = ''; // why nothing comes
let declined = false; // somebody has put the question for a token away
let retry = () => {}; // ends a wait

// ---- elements

function make(tag, props = {}, ...children) {
  const svg = ['svg', 'g', 'path', 'rect', 'text', 'title'].includes(tag) && props.svg !== false;
  const e = svg ? document.createElementNS('http://www.w3.org/2000/svg', tag) : document.createElement(tag);
  for (const [k, v] of Object.entries(props)) if (k !== 'svg' && v !== undefined) e.setAttribute(k, v);
  e.append(...children.filter(c => c !== '' && c !== null));
  return e;
}

// say sets a text only if it is another one: what is live is read aloud once.
const say = (id, text) => { if ($(id).textContent !== text) $(id).textContent = text; };

// fill makes an element's children anew only if what they are made of has changed.
const filled = {};
function fill(id, from, children) {
  const key = JSON.stringify(from);
  if (filled[id] === key) return;
  filled[id] = key;
  $(id).replaceChildren(...children());
}

// ---- words

const count = n => Number(n).toLocaleString('en').replaceAll(',', '\u202f');
const spanMs = ms => ms < 1000 ? `${Math.round(ms)} ms` : ms < 60e3 ? `${(ms / 1000).toFixed(1)} s` : ago(ms);
const ms = s => !s ? '–' : s < .01 ? `${(s * 1000).toFixed(2)} ms` : spanMs(s * 1000);
const utc = t => t.toISOString().replace('T', ' ').slice(0, 19);
function ago(ms) {
  const s = Math.max(0, Math.round(ms / 1000));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 2 * 86400) return `${Math.floor(s / 3600)} h ${Math.floor(s % 3600 / 60)} min`;
  return `${Math.floor(s / 86400)} days`;
}
const ahead = t => t - (Date.now() - skew) > 60e3; // as for the alerts
const since = t => ahead(t) ? 'by a clock that ran ahead' : `${ago(Date.now() - skew - t)} ago`;
const known = n => n.reachable || n.role_last;
const levelWord = { ok: 'well', notice: 'not all well', alarm: 'needs attention' };
function lagOf(n, st) {
  if (n.kind === 'logger' || n.name === st.primary) return '–';
  if (!n.reachable || n.lag_unknown) return 'unknown';
  return `${n.lag_seconds.toFixed(1)} s` + (n.lag_transactions ? `, ${count(n.lag_transactions)} tx` : '') + (n.applier_stopped ? ', stopped' : '');
}

// ---- what counts most

function showVerdict(st) {
  const q = st.quorum, last = st.last_change;
  const c = st.primary && last?.node !== st.primary ? null : last; // the newest change is not written down yet
  const card = (id, level, big, small) => {
    $('card-' + id).className = 'card ' + level;
    say(id, big);
    say(id + '-more', small);
  };
  const told = st.summary ?? [], failover = told.find(s => s.topic === 'failover');
  const gone = st.no_primary_seconds ? `since ${ago(st.no_primary_seconds * 1000)}: nobody can write` : 'nobody can write';
  const primary = st.nodes.find(n => n.name === st.primary), apart = told.some(s => s.topic === 'two sides');
  const waits = told.some(s => s.topic === 'acks' && s.text.startsWith('WRITES WAIT'));
  card('primary', st.primary && !apart && !waits ? 'ok' : 'alarm', st.primary || 'NO PRIMARY', st.primary && apart ? 'open for writes; another side may take writes, too' : st.primary && waits ? 'open, but writes wait: see below' : st.primary ? `open for writes${primary?.site ? `, site ${primary.site}` : ''}; ${failover?.text ?? ''}`.replace(/; $/, '') : `${gone}, as far as this node knows`);
  if (!q) card('safe', 'notice', 'Not known', 'This node takes no part in the cluster.');
  else {
    const big = !st.primary || q.survives < 0 ? 'Writes cannot go on'
      : q.survives === 0 ? (q.away ? 'No further failure' : 'No failure')
      : `Any ${q.survives === 1 ? 'one' : q.survives} of ${q.voters.length} nodes may fail`;
    const level = !st.primary || q.survives < 0 ? 'alarm' : q.survives === 0 ? 'notice' : 'ok';
    card('safe', level, big, [`${q.running?.length ?? 0} of ${q.voters.length} voters run`, ...(q.away ?? []), q.limit].filter(Boolean).join(', '));
  }
  if (!c) card('changed', '', 'None is known', '');
  else {
    const whom = c.from && c.from !== c.node ? `${c.from} → ${c.node || 'none'}` : c.node;
    const at = new Date(c.at), young = !ahead(at) && Date.now() - skew - at < 15 * 60e3;
    card('changed', c.what === 'no primary' ? 'alarm' : young && c.what === 'failover' ? 'notice' : '', `${c.what}: ${whom}`,
      [(ahead(at) ? `${utc(at)} UTC, ` : '') + since(at), c.no_primary_ms ? `no primary for ${spanMs(c.no_primary_ms)}` : '', c.why ?? ''].filter(Boolean).join(', '));
  }
  const rest = told.filter(s => !['primary', 'survives', 'failover'].includes(s.topic)); // the cards have these
  fill('sentences', rest, () => rest.map(s => make('li', { class: s.level }, s.text)));
}

// ---- topology

function showTopology(st) {
  const narrow = matchMedia('(max-width: 640px)').matches;
  const self = st.nodes.find(n => n.name === st.self);
  const head = st.nodes.find(n => n.name === st.primary) ?? st.nodes.find(n => n.id === self?.leader && n.reachable);
  const others = st.nodes.filter(n => n !== head);
  const writes = st.nodes.some(n => n.reachable && n.commits?.transactions_per_second > 0);
  const facts = n => [n.role, n.level, n.name, n.kind, n.log_last, n.applied, lagOf(n, st), n.site, n.fed_by];
  fill('topology', [narrow, st.primary, writes, head && facts(head), others.map(facts)], () => {
    const w = 236, h = 74, gap = narrow ? 40 : 26, width = narrow ? 340 : 680;
    const rows = Math.max(1, others.length), x = narrow ? width - w : width - w - 2;
    const top = narrow ? h + 40 : 2, height = top + rows * (h + gap) - gap + 2;
    const hx = narrow ? 0 : 2, hy = narrow ? 2 : (height - h) / 2;
    const svg = make('svg', { viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': wordsOf(st, head, others) });
    others.forEach((n, i) => {
      const y = top + i * (h + gap) + h / 2;
      const feeder = others.findIndex(o => o.name === n.fed_by); // a learner may get its log from another node than the primary
      const from = top + feeder * (h + gap) + h / 2, aside = x - (narrow ? 12 : 44);
      const d = feeder >= 0 ? `M ${x} ${from} C ${aside} ${from} ${aside} ${y} ${x} ${y}`
        : narrow ? `M ${26 + (others.length - 1 - i) * 12} ${hy + h} V ${y} H ${x}`
        : `M ${hx + w} ${hy + h / 2} C ${hx + w + 90} ${hy + h / 2} ${x - 90} ${y} ${x} ${y}`;
      const level = !head || !n.reachable ? 'alarm' : n.level;
      svg.append(make('path', { d, class: `link ${level}` }));
      if (writes && level === 'ok') svg.append(make('path', { d, class: 'flow' }));
    });
    others.forEach((n, i) => {
      const y = top + i * (h + gap), lag = lagOf(n, st);
      if (head && n.kind !== 'logger') {
        const text = lag === 'unknown' ? 'lag unknown' : `lag ${lag}`, half = text.length * 3.7 + 9;
        const cx = narrow ? x + w - half : x - 14 - half, cy = narrow ? y - gap / 2 + 1 : y + h / 2;
        svg.append(make('rect', { x: cx - half, y: cy - 12, width: 2 * half, height: 24, rx: 12, class: 'tag' }), make('text', { x: cx, y: cy + 4.5, class: 'on-tag' }, text));
      }
      svg.append(nodeBox(n, x, y, w, h, st));
    });
    if (head) svg.append(nodeBox(head, hx, hy, w, h, st));
    else svg.append(make('g', { class: 'alarm' }, make('rect', { x: hx, y: hy, width: w, height: h, rx: 10, class: 'box' }), make('text', { x: hx + 18, y: hy + 43, class: 'name' }, 'nobody leads')));
    return [svg];
  });
}

function nodeBox(n, x, y, w, h, st) {
  const g = make('g', { class: `${n.level}${n.name === st.primary ? ' primary' : ''}` });
  const short = n.name.length > 14 ? n.name.slice(0, 13) + '…' : n.name;
  g.append(make('title', {}, [n.name, ...(n.about ?? [])].join('\n')), make('rect', { x, y, width: w, height: h, rx: 10, class: 'box' }),
    make('rect', { x: x + 1, y: y + 12, width: 5, height: h - 24, rx: 2.5, class: 'bar' }),
    make('text', { x: x + 18, y: y + 29, class: 'name' }, short), make('text', { x: x + w - 14, y: y + 28, class: 'role' }, n.role),
    make('text', { x: x + 18, y: y + 54, class: 'sub' }, !known(n) ? 'not heard so far' : `log ${count(n.log_last)}` + (n.kind === 'full' || n.kind === 'learner' ? `  applied ${count(n.applied)}` : '')));
  return g;
}

const fedBy = n => n.fed_by ? `fed by ${n.fed_by}` : '';
const wordsOf = (st, head, others) => [head ? `${head.name} is ${head.role}` : 'nobody leads',
  ...others.map(n => [`${n.name} is ${n.role}`, fedBy(n), `lag ${lagOf(n, st)}`].filter(Boolean).join(', '))].join('; ');

// ---- commits

const rates = [];
function showCommits(st) {
  const c = st.nodes.find(n => n.name === st.primary)?.commits;
  rates.push(c ? c.transactions_per_second : null);
  if (rates.length > 240) rates.shift();
  say('tps', c ? count(Math.round(c.transactions_per_second)) : '–');
  const highest = Math.max(10, ...rates.map(r => r ?? 0)), at = i => [240 - (rates.length - 1 - i), 42 - 40 * (rates[i] ?? 0) / highest];
  const line = rates.map((_, i) => (i ? 'L' : 'M') + at(i).map(v => v.toFixed(1)).join(' ')).join('');
  fill('spark', line, () => rates.length < 2 ? [] : [make('path', { class: 'area', d: `${line}L240 44L${at(0)[0]} 44Z` }), make('path', { d: line })]);
  const parts = [['from mysqld to the tap', 'receive'], ['into Raft', 'propose'], ['on the primary’s disk', 'fsync'], ['on a majority’s disks', 'majority'], ['to the ACK', 'release']]
    .map(([words, of]) => [words, c?.[`${of}_seconds`] ?? 0]);
  say('ack', ms(parts.reduce((sum, [, s]) => sum + s, 0)));
  fill('split', parts, () => parts.map(([, s], i) => {
    const bar = make('i', { class: `part-${i}` });
    bar.style.flex = `${s * 1e6 || 0} 0 0`;
    return bar;
  }));
  fill('split-words', parts.map(([w, s]) => w + ms(s)), () => parts.flatMap(([w, s], i) => [make('i', { class: `part-${i}` }), make('dt', {}, w), make('dd', {}, ms(s))]));
}

// ---- nodes

function showNodes(st) {
  fill('nodes', [st.primary, st.nodes.map(n => [n.name, n.kind, n.weight, n.role, n.level, n.about, n.log_last, n.applied, lagOf(n, st), n.mysqld, n.server_version, n.reachable, n.site, n.fed_by])], () =>
    st.nodes.map(n => make('tr', {},
      make('td', {}, make('span', { class: 'who' }, n.name), make('span', { class: 'what' }, [n.role, n.kind !== 'full' && n.kind !== n.role ? n.kind : '', n.kind === 'full' ? `weight ${n.weight}` : '', fedBy(n), n.site ?? ''].filter(Boolean).join(', '))),
      make('td', {}, make('span', { class: `level ${n.level}` }, levelWord[n.level] ?? ''), ...(n.about ?? []).map(a => make('p', {}, a))),
      make('td', { class: 'n', 'data-label': 'Log' }, known(n) ? count(n.log_last) : '–'),
      make('td', { class: 'n', 'data-label': 'Applied' }, known(n) && n.kind !== 'logger' ? count(n.applied) : '–'),
      make('td', { class: 'n', 'data-label': 'Lag' }, lagOf(n, st)),
      make('td', { 'data-label': 'mysqld' }, n.kind === 'logger' ? '–' : n.reachable ? `${n.mysqld} ${n.server_version ?? ''}` : '–'))));
}

// ---- history

let rows = [];
const moves = ['first primary', 'failover', 'switchover', 'reopened', 'no primary'];
function showHistory() {
  fill('history', rows, () => rows.length === 0 ? [make('li', {}, 'Nothing is known so far.')] : rows.toReversed().map(r => {
    const at = new Date(r.at), whom = r.from && r.from !== r.node ? `${r.from} → ${r.node || 'none'}` : r.node;
    const took = [r.no_primary_ms ? `no primary for ${spanMs(r.no_primary_ms)}` : '', r.last_write_ms ? `last write ${spanMs(r.last_write_ms)} before` : '',
      r.applied_transactions ? `applied ${count(r.applied_transactions)} transactions first` : ''].filter(Boolean).join(', ');
    return make('li', { class: ['no primary', 'fenced', 'errant'].includes(r.what) ? 'bad' : r.what === 'failover' ? 'warn' : moves.includes(r.what) ? 'moved' : '' },
      make('time', { datetime: r.at }, `${utc(at)} UTC`, make('span', { class: 'ago' }, since(at))),
      make('div', {}, make('b', {}, r.what), ` ${whom}`, r.why ? make('p', {}, r.why) : '', took ? make('p', {}, took) : ''));
  }));
  for (const e of document.querySelectorAll('#history time')) {
    const text = since(new Date(e.dateTime));
    if (e.lastChild.textContent !== text) e.lastChild.textContent = text;
  }
}

// ---- the connection

function show(st) {
  state = st;
  for (const a of document.querySelectorAll('footer .open')) a.hidden = token() !== ''; // the browser would send no token there
  say('cluster', st.cluster);
  const title = st.primary ? `${st.cluster}: ${st.primary}` : `NO PRIMARY: ${st.cluster}`;
  if (document.title !== title) document.title = title;
  showVerdict(st);
  showTopology(st);
  showCommits(st);
  showNodes(st);
  showHistory();
  say('footer-node', `as node ${st.self} sees it, quorate ${st.nodes.find(n => n.name === st.self)?.agent_version ?? ''}`);
  say('do-maintenance', st.maintenance ? 'End maintenance…' : 'Maintenance…');
}

function tick() {
  const silent = Date.now() - heardAt, live = heardAt && silent < silenceMax;
  document.body.className = live ? 'live' : heardAt ? 'stale' : 'waiting';
  for (const b of document.querySelectorAll('.operate')) b.disabled = !live;
  if (live) say('link-text', `Live, from node ${state.self}`);
  else if (heardAt) say('link-text', `OLD: from node ${state.self}. ${trouble || 'It says nothing any more: its agent is gone, or cut off from here.'} Look at another node.`);
  else say('link-text', trouble || 'Connecting…');
  say('link-age', heardAt ? live ? `${utc(new Date(heardAt - skew)).slice(11)} UTC` : `as of ${ago(silent)} ago` : '');
}

const token = () => sessionStorage.getItem(tokenKey) ?? '';
const headers = () => token() ? { Authorization: `Bearer ${token()}` } : {};

function heard(name, data) {
  if (name === 'history') {
    rows = data.history;
    showHistory();
  } else {
    show(data);
    heardAt = Date.now();
    trouble = '';
    declined = false;
    tick();
  }
}

// read hands on the events of one stream, until it ends or is silent for too long.
async function read() {
  const stop = new AbortController();
  let watch = setTimeout(() => stop.abort(), silenceMax);
  try {
    const answer = await fetch('v1/events', { headers: headers(), cache: 'no-store', signal: stop.signal });
    if (!answer.ok) {
      const said = await answer.json().catch(() => ({}));
      trouble = `It answered ${answer.status}: ${said.error ?? answer.statusText}.`;
      if (answer.status === 401 && !declined) askToken('This agent wants a token, with the role read or operate.');
      return;
    }
    const date = Date.parse(answer.headers.get('date'));
    if (date) skew = Math.abs(Date.now() - date) > 2000 ? Date.now() - date : 0;
    const text = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ''; ;) {
      const { value, done } = await text.read();
      if (done) return;
      clearTimeout(watch);
      watch = setTimeout(() => stop.abort(), silenceMax);
      const blocks = (rest + value).split('\n\n');
      rest = blocks.pop();
      for (const block of blocks) {
        const field = name => block.split('\n').find(l => l.startsWith(name + ': '))?.slice(name.length + 2);
        try {
          heard(field('event'), JSON.parse(field('data')));
        } catch (err) { // a mistake of this page's, or of the agent's: what is shown gets old, and says so
          console.error(err);
          trouble = `What it says cannot be shown here: ${err.message}.`;
        }
      }
    }
  } finally {
    clearTimeout(watch);
  }
}

async function follow() {
  for (let wait = 500; ; wait = Math.min(wait * 1.6, 5000)) {
    const before = heardAt;
    try {
      await read();
    } catch { // nobody listens, the connection has ended, or nothing came for too long
      trouble = heardAt ? '' : 'The agent does not answer.';
    }
    if (heardAt !== before) wait = 500;
    tick();
    await new Promise(done => { retry = done; setTimeout(done, wait); });
  }
}

// ---- what a token allows

async function operate(what, body) {
  const answer = await fetch('v1/' + what, { method: 'POST', headers: { ...headers(), 'Content-Type': 'application/json' }, body: JSON.stringify(body) });
  const said = await answer.json();
  if (!answer.ok) throw Object.assign(new Error(said.error), { status: answer.status, code: said.code });
  return said;
}

const lines = (id, ...texts) => $(id).replaceChildren(...texts.map(([text, level]) => make('p', { class: level ?? '' }, text)));
const allowed = yes => { for (const b of document.querySelectorAll('.operate')) b.hidden = !yes; say('do-token', yes ? 'Token…' : 'Operate…'); };

function askToken(why) {
  if ($('token-dialog').open) return;
  if (why) say('token-why', why);
  say('token-result', '');
  say('token-ok', 'Use it');
  warned = '';
  $('token').value = '';
  $('token-dialog').showModal();
}

// mayRead tells why a token is good for nothing; '' = it may read, or everybody may.
async function mayRead() {
  try {
    const answer = await fetch('v1/status', { headers: headers(), cache: 'no-store' });
    return answer.ok ? '' : (await answer.json()).error;
  } catch (err) {
    return `The agent does not answer: ${err.message}`;
  }
}

// mayOperate asks for a plan, which changes nothing: who may not is told so.
async function mayOperate() {
  try {
    await operate('switchover', { dry_run: true });
  } catch (err) {
    if (err.status === 401 || err.status === 403) {
      allowed(false);
      return err;
    }
  }
  allowed(true);
  return null;
}

// unheard: what this page sends goes through TLS, or does not leave this machine.
const unheard = location.protocol === 'https:' || /^(localhost|127\.[0-9.]+|\[::1\])$/.test(location.hostname);
let warned = ''; // the token of which somebody was told that it goes in clear

async function useToken(event) {
  event.preventDefault();
  const given = $('token').value.trim();
  if (!unheard && warned !== given) {
    warned = given;
    say('token-result', `It was not sent yet. To ${location.host} it goes in clear: anybody who listens on the network can read it. Send none with the role operate: from another host it is refused. ` +
      'Bring the page to your machine by ssh -L, or use https.');
    say('token-ok', 'Send it in clear');
    return;
  }
  sessionStorage.setItem(tokenKey, given);
  const unread = await mayRead();
  const refused = unread ? null : await mayOperate();
  retry();
  if (unread) allowed(false);
  if (unread || refused && refused.code !== 'read-only-token') say('token-result', unread || refused.message);
  else $('token-dialog').close();
}

// moveWords says what a switchover did, or would do. Without a primary it only lets a node open (in maintenance).
function moveWords(s) {
  if (!s.from) return s.dry_run ? `${s.to} could open then: ${s.why}.` : `${s.to} may open now. This page shows when it has.`;
  if (s.from === s.to) return `Nothing to move: node ${s.to} is the primary already.`;
  return s.dry_run ? `The primary would move from ${s.from} to ${s.to}: ${s.why}.`
    : `The primary moved from ${s.from} to ${s.to}: no writes for about ${Math.round(s.pause_ms ?? 0)} ms.`;
}

async function planSwitchover() {
  lines('switchover-result', ['Asking what that would mean…']);
  $('switchover-ok').disabled = true;
  try {
    const plan = await operate('switchover', { to: $('switchover-to').value || undefined, dry_run: true });
    const blocks = plan.blocks ?? [];
    lines('switchover-result', blocks.length ? ['The primary would not move.', 'alarm'] : [moveWords(plan)],
      ...blocks.map(b => [`In the way: ${b}`, 'alarm']), ...(plan.notes ?? []).map(n => [n]));
    $('switchover-ok').disabled = blocks.length > 0 || plan.from === plan.to;
  } catch (err) {
    lines('switchover-result', [err.message, 'alarm']);
  }
}

// carryOut has a dialog's request carried out, and says in it what became of that.
async function carryOut(event, name, what, body, done) {
  event.preventDefault();
  $(name + '-ok').disabled = true;
  lines(name + '-result', ['Under way…']);
  try {
    const result = await operate(what, body);
    lines(name + '-result', [done(result), 'ok'], ...(result.notes ?? []).map(n => [n]));
  } catch (err) {
    const unknown = err.status === undefined || err.code === 'uncertain';
    lines(name + '-result', [unknown ? `It is not known whether it was done: ${err.message}` : err.message, 'alarm']);
  }
}

function openSwitchover() {
  const able = state.nodes.filter(n => n.kind === 'full' && n.name !== state.primary);
  $('switchover-to').replaceChildren(make('option', { value: '' }, 'the best node'), ...able.map(n => make('option', { value: n.name }, `${n.name} (${n.role}, lag ${lagOf(n, state)})`)));
  $('switchover-dialog').showModal();
  planSwitchover();
}

function openMaintenance() {
  const on = Boolean(state.maintenance);
  say('maintenance-title', on ? 'End maintenance' : 'Maintenance');
  say('maintenance-text', on ? 'Failover is automatic again from then on.' : 'While it is on, no other node takes over by itself. What is acknowledged is as safe as ever.');
  say('maintenance-ok', on ? 'Switch it off' : 'Switch it on');
  $('maintenance-how').hidden = on;
  $('maintenance-ok').disabled = false;
  lines('maintenance-result');
  $('maintenance-dialog').showModal();
}

for (const b of document.querySelectorAll('[data-close]')) b.addEventListener('click', () => b.closest('dialog').close());
$('do-token').addEventListener('click', () => askToken(''));
$('token-dialog').addEventListener('close', () => { declined = true; });
$('do-switchover').addEventListener('click', openSwitchover);
$('do-maintenance').addEventListener('click', openMaintenance);
$('token-dialog').querySelector('form').addEventListener('submit', useToken);
$('token-forget').addEventListener('click', () => { sessionStorage.removeItem(tokenKey); allowed(false); $('token-dialog').close(); });
$('switchover-to').addEventListener('change', planSwitchover);
$('switchover-dialog').querySelector('form').addEventListener('submit', e => carryOut(e, 'switchover', 'switchover', { to: $('switchover-to').value || undefined },
  moveWords));
$('maintenance-dialog').querySelector('form').addEventListener('submit', e => carryOut(e, 'maintenance', 'maintenance',
  state.maintenance ? { on: false } : { on: true, reason: $('maintenance-reason').value, for_ns: Number($('maintenance-for').value) * 60e9 },
  c => c.done || (c.changed ? 'Done.' : 'It was so already.')));
matchMedia('(max-width: 640px)').addEventListener('change', () => state && showTopology(state));

setInterval(tick, 500);
if (token()) mayOperate();
follow();
