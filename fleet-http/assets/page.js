// Live changes, filtering, keys, ages of times, and the journal. Every page works without it.
'use strict';
(() => {
  const find = (selector, within = document) => within.querySelector(selector);
  const page = document.body;
  const table = find('table[data-rows]');
  const rowsOf = new Map(); // unit -> machine -> row
  const connection = find('#connection');

  // --- times -----------------------------------------------------------------------------------
  const STEPS = [[60, 's'], [60, 'min'], [24, 'h'], [Infinity, 'd']];
  function age(seconds) {
    let value = Math.max(0, seconds);
    for (const [size, unit] of STEPS) {
      if (value < size) return `${Math.floor(value)} ${unit}`;
      value /= size;
    }
  }
  function showAges(within = document) {
    for (const time of within.querySelectorAll('time[datetime]')) {
      const at = new Date(time.dateTime);
      if (isNaN(at)) continue;
      const seconds = (Date.now() - at) / 1000;
      const text = seconds < 0 ? `in ${age(-seconds)}` : `${age(seconds)} ago`;
      if (time.textContent !== text) time.textContent = text;
    }
  }
  // The local form of a time takes long to make, so only the one under the pointer gets it.
  document.addEventListener('mouseover', ({ target }) => {
    if (target.dateTime && !target.title) target.title = new Date(target.dateTime).toLocaleString();
  });

  // --- rows ------------------------------------------------------------------------------------
  const isBefore = (a, b) => a.dataset.unit < b.dataset.unit ||
    (a.dataset.unit === b.dataset.unit && a.dataset.machine < b.dataset.machine);

  function remember(row) {
    const { unit, machine } = row.dataset;
    if (!rowsOf.has(unit)) rowsOf.set(unit, new Map());
    rowsOf.get(unit).set(machine, row);
  }

  // Returns the place of a new row by a binary search: the first row after it.
  function placeOf(row) {
    const rows = table.tBodies[0].rows;
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (isBefore(rows[middle], row)) low = middle + 1; else high = middle;
    }
    return rows[low] ?? null;
  }

  function parse(html) {
    const template = document.createElement('template');
    template.innerHTML = html;
    return template.content.firstElementChild;
  }

  function replace(old, fresh) {
    const focused = old.contains(document.activeElement) && document.activeElement;
    old.replaceWith(fresh);
    if (!focused) return;
    const same = (focused.id && document.getElementById(focused.id)) || find('a, button', fresh);
    same?.focus({ preventScroll: true });
  }

  function setRow(unit, machine, html) {
    const known = rowsOf.get(unit)?.get(machine);
    if (!html) {
      known?.remove();
      rowsOf.get(unit)?.delete(machine);
      return;
    }
    const row = parse(html);
    if (known?.outerHTML === html) return;
    if (!known && table.dataset.cut !== undefined && placeOf(row) === null) return;
    showAges(row);
    row.hidden = !matches(row);
    row.classList.add('changed');
    if (known) replace(known, row); else table.tBodies[0].insertBefore(row, placeOf(row));
    remember(row);
  }

  function setRows(unit, rows) {
    const kept = new Set(rows.map(([machine]) => machine));
    for (const machine of [...(rowsOf.get(unit)?.keys() ?? [])]) {
      if (!kept.has(machine)) setRow(unit, machine, '');
    }
    for (const [machine, html] of rows) setRow(unit, machine, html);
  }

  function setPart(id, html) {
    const old = document.getElementById(id);
    if (!old) return;
    if (!html.startsWith('<')) { old.textContent = html; return; }
    const fresh = parse(html);
    showAges(fresh);
    replace(old, fresh);
  }

  function count() {
    if (!table || table.dataset.cut !== undefined) return;
    for (const state of ['failed', 'unplaced']) {
      const target = document.getElementById(`count-${state}`);
      if (target) target.textContent = table.querySelectorAll(`tr[data-state=${state}]`).length;
    }
  }

  // Changes are made before a frame, at most this many rows in each, so that the page stays fluent.
  const MOST_ROWS = 50;
  const waiting = [];
  function schedule() {
    if (waiting.scheduled) return;
    waiting.scheduled = true;
    requestAnimationFrame(() => {
      waiting.scheduled = false;
      waiting.splice(0, MOST_ROWS).forEach((change) => change());
      showMatches();
      count();
      if (waiting.length) schedule();
    });
  }
  function patch({ units, rows, parts }) {
    if (table) {
      for (const [unit, of] of units) waiting.push(() => setRows(unit, of));
      for (const [unit, machine, html] of rows) {
        waiting.push(() => {
          setRow(unit, machine, html);
          if (machine && html && rowsOf.get(unit)?.has('')) setRow(unit, '', '');
        });
      }
    }
    for (const [id, html] of parts) waiting.push(() => setPart(id, html));
    // The leader records the event about a second after the change.
    if (find('#history')) {
      clearTimeout(waiting.history);
      waiting.history = setTimeout(reload, 1500);
    }
    schedule();
  }

  // Loads the page again and takes over its rows and sections, after changes that were missed.
  async function reload() {
    const response = await fetch(location.href);
    if (!response.ok) return;
    const fresh = new DOMParser().parseFromString(await response.text(), 'text/html');
    page.dataset.since = fresh.body.dataset.since;
    if (table && find('table[data-rows] tbody', fresh)) {
      table.tBodies[0].replaceWith(document.adoptNode(find('table[data-rows] tbody', fresh)));
      readRows();
    }
    for (const id of ['status', 'history', 'count-units', 'count-machines', 'count-failed', 'count-unplaced']) {
      const [old, now] = [document.getElementById(id), fresh.getElementById(id)];
      if (old && now) replace(old, document.adoptNode(now));
    }
    showAges();
    showMatches();
  }
  function readRows() {
    rowsOf.clear();
    for (const row of table.tBodies[0].rows) { remember(row); row.hidden = !matches(row); }
  }

  // --- the stream of changes -------------------------------------------------------------------
  let stream = null;
  let retry = null;
  function say(text, isLost) {
    connection.textContent = text;
    connection.classList.toggle('lost', isLost);
  }
  // A page in the background holds no connection: a browser opens only six to one server.
  function follow() {
    clearTimeout(retry);
    stream?.close();
    stream = null;
    if (!page.dataset.live || document.hidden) return;
    const since = encodeURIComponent(page.dataset.since);
    stream = new EventSource(`/ui/live?${page.dataset.live}&since=${since}`);
    stream.onopen = () => say('Live', false);
    stream.onerror = () => {
      say('Disconnected, reconnecting…', true);
      // The browser tries again by itself, except after a response with an error.
      if (stream.readyState === EventSource.CLOSED) retry = setTimeout(follow, 2000);
    };
    stream.addEventListener('patch', (event) => {
      page.dataset.since = event.lastEventId;
      patch(JSON.parse(event.data));
    });
    stream.addEventListener('reload', (event) => {
      page.dataset.since = event.lastEventId;
      reload();
    });
  }

  // --- the filter ------------------------------------------------------------------------------
  const filter = find('#filter');
  let words = [];
  function matches(row) {
    if (!words.length) return true;
    const text = `${row.dataset.unit} ${row.dataset.machine} ${row.textContent}`.toLowerCase();
    return words.every((word) => text.includes(word));
  }
  function readWords() {
    words = (filter?.value ?? '').toLowerCase().split(/\s+/).filter(Boolean);
  }
  function showMatches() {
    const output = find('#matches');
    if (!output || !table) return;
    const rows = table.tBodies[0].rows;
    const shown = words.length ? [...rows].filter((row) => !row.hidden).length : rows.length;
    const text = words.length ? `${shown} of ${rows.length} shown` : '';
    if (output.textContent !== text) output.textContent = text;
  }
  filter?.addEventListener('input', () => {
    readWords();
    for (const row of table.tBodies[0].rows) row.hidden = !matches(row);
    showMatches();
    const url = new URL(location.href);
    if (filter.value) url.searchParams.set('q', filter.value); else url.searchParams.delete('q');
    history.replaceState(null, '', url);
  });

  // --- keys ------------------------------------------------------------------------------------
  function move(step) {
    const links = [...document.querySelectorAll('table[data-rows] tbody tr:not([hidden]) th a')];
    const row = document.activeElement?.closest?.('tbody tr');
    const at = links.findIndex((link) => row?.contains(link));
    const next = links[at < 0 ? (step > 0 ? 0 : links.length - 1) : at + step];
    next?.focus();
    next?.scrollIntoView({ block: 'nearest' });
  }
  const KEYS = {
    '/': () => { filter?.focus(); filter?.select(); },
    j: () => move(1), ArrowDown: () => move(1),
    k: () => move(-1), ArrowUp: () => move(-1),
    u: () => { location.href = '/'; },
    m: () => { location.href = '/ui/machines'; },
    '?': () => {
      const keys = find('.keys');
      keys.open = !keys.open;
      find('summary', keys).focus();
    },
  };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    const target = event.target;
    if (target === filter && event.key === 'Escape') {
      filter.value = '';
      filter.dispatchEvent(new Event('input'));
      filter.blur();
      return;
    }
    const isField = target.closest('input, textarea, select');
    if (isField && !(target === filter && event.key === 'ArrowDown')) return;
    if (event.key.startsWith('Arrow') && (!table || target.closest('pre'))) return;
    const action = KEYS[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });

  // --- the journal -----------------------------------------------------------------------------
  const MOST_LINES = 2000;
  const log = find('#journal');
  const pause = find('#journal-pause');
  const cursors = new Map(); // machine -> cursor of its last line
  let reading = null;
  function addLines(lines) {
    const atEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 40;
    const fragment = document.createDocumentFragment();
    for (const line of lines) {
      const [cursor, millis] = line.split(' ', 2);
      const text = line.slice(cursor.length + millis.length + 2);
      const machine = cursor.split('/', 1)[0];
      if (cursor !== '-') cursors.set(machine, cursor);
      const div = document.createElement('div');
      if (millis !== '-') {
        const time = document.createElement('span');
        time.className = 'sub';
        time.textContent = `${new Date(Number(millis)).toLocaleTimeString()} `;
        div.append(time);
      }
      div.append(text);
      fragment.append(div);
    }
    log.append(fragment);
    while (log.childElementCount > MOST_LINES) log.firstElementChild.remove();
    if (atEnd) log.scrollTop = log.scrollHeight;
  }
  async function readJournal(signal) {
    const query = new URLSearchParams({ follow: 1, lines: 200, cursors: 1, timestamps: 1 });
    for (const cursor of cursors.values()) query.append('after', cursor);
    const response = await fetch(`${log.dataset.url}?${query}`, { signal });
    if (!response.ok) {
      const problem = await response.json().catch(() => null);
      throw new Error(problem?.error?.message ?? `status ${response.status}`);
    }
    find('#journal-state').textContent = 'live';
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = '';
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split('\n');
      rest = lines.pop();
      if (lines.length) addLines(lines);
    }
  }
  async function followJournal() {
    if (!log || reading || document.hidden || pause.dataset.paused) return;
    if (!find('#status .states')) {
      find('#journal-state').textContent = 'on no machine';
      setTimeout(followJournal, 1000);
      return;
    }
    reading = new AbortController();
    const { signal } = reading;
    try {
      await readJournal(signal);
      find('#journal-state').textContent = 'ended';
    } catch (error) {
      if (!signal.aborted) find('#journal-state').textContent = error.message;
    }
    if (signal.aborted) return;
    reading = null;
    setTimeout(followJournal, 3000);
  }
  function stopJournal() { reading?.abort(); reading = null; }
  pause?.addEventListener('click', () => {
    const isPaused = !pause.dataset.paused;
    if (isPaused) pause.dataset.paused = 'yes'; else delete pause.dataset.paused;
    pause.textContent = isPaused ? 'Continue' : 'Pause';
    find('#journal-state').textContent = isPaused ? 'paused' : '';
    if (isPaused) stopJournal(); else followJournal();
  });

  // --- resources -------------------------------------------------------------------------------
  const usage = find('#usage');
  let cpuBefore = null;
  const mib = (bytes) => `${Math.round(bytes / 1048576)} MiB`;
  async function showUsage() {
    if (!usage || document.hidden) return;
    const response = await fetch(usage.dataset.url).catch(() => null);
    if (!response?.ok) return;
    const report = await response.json();
    const { unit } = usage.dataset;
    const used = unit ? report.units?.find((it) => it.name === unit) : report;
    const parts = [];
    if (used?.memory !== undefined) parts.push(`${mib(used.memory)} memory`);
    if (used?.memoryTotal !== undefined) {
      parts.push(`${mib(used.memoryAvailable ?? 0)} of ${mib(used.memoryTotal)} memory available`);
    }
    if (used?.tasks !== undefined) parts.push(`${used.tasks} tasks`);
    if (used?.loadAverage) parts.push(`load ${used.loadAverage[0].toFixed(2)} of ${used.cpus} CPUs`);
    const cpu = [performance.now(), used?.cpuNanoseconds];
    if (cpuBefore && cpu[1] >= cpuBefore[1]) {
      const share = (cpu[1] - cpuBefore[1]) / (cpu[0] - cpuBefore[0]) / 1e4;
      parts.push(`${share.toFixed(1)} % of a CPU`);
    }
    cpuBefore = cpu[1] === undefined ? null : cpu;
    usage.hidden = !parts.length;
    usage.textContent = parts.join(', ');
  }

  // --- the upload of unit files ----------------------------------------------------------------
  const files = find('#files');
  files?.addEventListener('change', async () => {
    const first = find('.file');
    for (const file of files.files) {
      const fields = first.cloneNode(true);
      find('input', fields).value = file.name;
      find('textarea', fields).value = await file.text();
      find('#apply').insertBefore(fields, first);
    }
    if (files.files.length && !find('input', first).value) first.remove();
  });

  // --- start -----------------------------------------------------------------------------------
  readWords();
  if (table) { readRows(); showMatches(); }
  showAges();
  setInterval(showAges, 10000);
  if (find('#choose')) find('#choose').hidden = false;
  if (pause) pause.hidden = false;
  document.addEventListener('visibilitychange', () => {
    follow();
    if (document.hidden) stopJournal(); else followJournal();
  });
  follow();
  followJournal();
  showUsage();
  setInterval(showUsage, 5000);
})();
