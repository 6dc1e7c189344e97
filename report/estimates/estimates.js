// Shows a sweep of estimates, and computes it anew when an input is moved: with
// the command's own code, compiled to WebAssembly. Without that the page shows
// what was computed when it was made.
const axes = data.axes.map(a => {
  const numbers = a.text.slice(a.input.length + 1).split(',').map(Number);
  return {...a, numbers, numeric: numbers.every(Number.isFinite)};
});
const choice = {variant: data.variants.length - 1, across: 0, down: 1, at: axes.map(() => 0)};
if (axes.length > 1) { // the last was varied first, and is read first
  choice.across = axes.length - 1;
  choice.down = axes.length - 2;
}
let sheet = data.sheet, points = parse(sheet.table);

// parse reads the columns behind those of the axes.
function parse(table) {
  return table.trimEnd().split('\n').slice(1).map(line => {
    const [mode, days, , learning, mfu, , , bottleneck, feasible] = line.split(',').slice(-9);
    return {mode, days: +days, learning: +learning, mfu: +mfu, bottleneck, feasible: feasible === 'true'};
  });
}

// point finds an estimate by its place on each axis; the last varies first.
const point = (at, variant) => points[axes.reduce((k, a, d) => k * a.values.length + at[d], 0) * data.variants.length + variant];
const place = changes => choice.at.map((i, d) => changes[d] ?? i);
const figure = x => x >= 1000 ? thousands(x) : String(+x.toPrecision(4));
const wide = xs => Math.min(...xs) > 0 && Math.max(...xs) / Math.min(...xs) >= 32;

// Modes by what their names begin with.
const modes = [
  {is: /^PP over/, letter: 'B', name: 'one pipeline', colour: 'reduce-scatter'},
  {is: /^PP-Group/, letter: 'C', name: 'pipeline groups', colour: 'all-reduce'},
  {is: /^Hier/, letter: 'A′', name: 'hierarchical', colour: 'state fetch'},
  {is: /^/, letter: 'A', name: 'data parallel', colour: 'inner step'},
];
const modeOf = p => modes.find(m => m.is.test(p.mode));
const told = p => `<b>${figure(p.days)} days</b>, ${p.feasible ? 'within' : 'beyond'} the time that a run may take<br>${escape(p.mode)}<br>bound by ${escape(p.bottleneck.toLowerCase())} · learning ${figure(p.learning)} % · MFU ${figure(p.mfu)} %`;
const tip = () => ({confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12}});
const named = (name, gap) => ({name, nameLocation: 'middle', nameGap: gap, nameTextStyle: {color: colour.soft, fontSize: 12}});

// controls offers what the pictures show as lists with names.
function controls() {
  const box = get('controls');
  const focused = [...box.querySelectorAll('select')].indexOf(document.activeElement);
  box.textContent = '';
  const add = (label, options, value, choose) => {
    const el = document.createElement('label'), select = document.createElement('select');
    options.forEach((text, k) => select.add(new Option(text, k, false, k === value)));
    select.addEventListener('change', () => { choose(Number(select.value)); show(); });
    el.append(label + ' ', select);
    box.append(el);
  };
  if (data.variants.length > 1) add('variant', data.variants, choice.variant, v => { choice.variant = v; });
  if (axes.length > 1) {
    const swap = (mine, other) => v => {
      if (choice[other] === v) choice[other] = choice[mine];
      choice[mine] = v;
    };
    add('across', axes.map(a => a.input), choice.across, swap('across', 'down'));
    add('down', axes.map(a => a.input), choice.down, swap('down', 'across'));
  }
  axes.forEach((a, d) => {
    if (axes.length > 1 && d !== choice.across && d !== choice.down) add(a.input, a.values, choice.at[d], v => { choice.at[d] = v; });
  });
  if (focused >= 0) box.querySelectorAll('select')[focused]?.focus();
}

// curves draws days over an axis: a line for each value of a second one, or, if
// there is none, for each variant. The document's is dashed, since it mostly lies
// upon the page's.
function curves() {
  const a = axes[choice.across], second = axes.length > 1 ? axes[choice.down] : null;
  const order = [...a.values.keys()];
  if (a.numeric) order.sort((i, k) => a.numbers[i] - a.numbers[k]);
  const lines = second
    ? second.values.map((value, j) => ({name: `${second.input}=${value}`, end: value, points: order.map(i => point(place({[choice.across]: i, [choice.down]: j}), choice.variant))}))
    : data.variants.map((name, v) => ({name, end: data.variants.length > 1 ? name : '', points: order.map(i => point([i], v))}));
  const all = lines.flatMap(l => l.points.map(p => p.days)), log = wide(all);
  const x = k => a.numeric ? a.numbers[order[k]] : k;
  const limit = sheet.maxDays > 0 && sheet.maxDays >= Math.min(...all) / 2 && sheet.maxDays <= Math.max(...all) * 2;
  draw('curves', 340, all.length, {
    grid: {left: 68, right: 20 + 6 * Math.max(...lines.map(l => l.end.length)), top: 14, bottom: 46},
    xAxis: axis({
      ...(a.numeric ? {type: wide(a.numbers) ? 'log' : 'value', min: 'dataMin', max: 'dataMax'} : {type: 'category', data: order.map(i => a.values[i])}),
      ...named(a.input, 26), splitLine: {show: false},
      ...(a.numeric ? {axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true, customValues: a.numbers, formatter: n => a.values[a.numbers.indexOf(n)] ?? figure(n)}, axisTick: {customValues: a.numbers, lineStyle: {color: colour.line}}} : {}),
    }),
    yAxis: axis({
      type: log ? 'log' : 'value', ...named('days', 50), axisLabel: {color: colour.soft, fontSize: 11, formatter: figure},
      max: v => limit && sheet.maxDays > v.max ? sheet.maxDays : null, ...(log ? {min: v => limit && sheet.maxDays < v.min ? sheet.maxDays : null} : {}),
    }),
    series: lines.map((l, k) => ({
      type: 'line', name: l.name, symbol: policySymbol(k), symbolSize: 7, lineStyle: {color: policyColour(k), width: 2, type: !second && k === 1 ? 'dashed' : 'solid'}, itemStyle: {color: policyColour(k)},
      endLabel: {show: true, formatter: l.end, color: colour.ink, fontSize: 11, distance: 6}, labelLayout: {hideOverlap: true},
      data: l.points.map((p, n) => [x(n), p.days]),
      ...(limit && !k ? {markLine: {silent: true, symbol: 'none', animation: false, data: [{yAxis: sheet.maxDays}], lineStyle: {color: colour.deadline, type: 'dashed', width: 2}, label: {show: false}}} : {}),
    })),
    tooltip: {...tip(), trigger: 'axis', formatter: ps => {
      const n = ps[0].dataIndex;
      return `<b>${escape(a.input)}=${escape(a.values[order[n]])}</b>` + lines.map(l => `<br>${escape(l.name)}: ${figure(l.points[n].days)} days ${modeOf(l.points[n]).letter}`).join('');
    }},
  });
  legend('legend-curves', [...lines.map((l, k) => ['line', policyColour(k), l.name]), ...(limit ? [['dashes', colour.deadline, `${figure(sheet.maxDays)} days that a run may take`]] : [])]);
  get('caption-curves').textContent = `Days over ${a.input}${data.variants.length > 1 && second ? ', ' + data.variants[choice.variant] : ''}.`;
}

// heat draws the days over two axes: the mode by colour and letter, fewer days
// in stronger colour, and a line between what a run may take and what not.
function heat() {
  const fx = axes[choice.across], fy = axes[choice.down];
  const at = (i, j) => point(place({[choice.across]: i, [choice.down]: j}), choice.variant);
  const columns = fx.values.length, rows = fy.values.length;
  const row = rows > 30 ? 18 : 34, height = rows * row;
  const labels = Math.min(14 + 7 * Math.max(...fy.values.map(v => v.length), 3), 120);
  const room = ((printing ? paper : get('heat').clientWidth) - labels - 34) / columns;
  const cells = [], edges = [];
  for (let j = 0; j < rows; j++) {
    for (let i = 0; i < columns; i++) {
      const p = at(i, j);
      cells.push([i, j]);
      if (i + 1 < columns && at(i + 1, j).feasible !== p.feasible) edges.push([i, j, 0]);
      if (j + 1 < rows && at(i, j + 1).feasible !== p.feasible) edges.push([i, j, 1]);
    }
  }
  const logs = cells.map(([i, j]) => Math.log(at(i, j).days)), least = Math.min(...logs), most = Math.max(...logs);
  // A letter in every cell that has room, else in one of several.
  const every = Math.max(1, Math.ceil(16 / room));
  const cell = (_, api) => {
    const i = api.value(0), j = api.value(1), p = at(i, j), m = modeOf(p), [x, y] = api.coord([i, j]), [w, h] = api.size([1, 1]);
    const text = room > 62 && row > 20 ? `${m.letter} ${figure(p.days)}` : i % every === 0 && j % (row > 20 ? 1 : 2) === 0 ? m.letter : '';
    return {type: 'group', children: [
      {type: 'rect', shape: {x: x - w / 2, y: y - h / 2, width: w, height: h}, style: {fill: colour[m.colour], opacity: .1 + .4 * (most > least ? (most - Math.log(p.days)) / (most - least) : 1), stroke: colour.line, lineWidth: 1}},
      {type: 'text', silent: true, style: {text, x, y, align: 'center', verticalAlign: 'middle', fill: colour.ink, fontSize: 11}},
    ]};
  };
  const edge = (_, api) => {
    const [x, y] = api.coord([api.value(0), api.value(1)]), [w, h] = api.size([1, 1]), side = api.value(2);
    const shape = side ? {x1: x - w / 2, x2: x + w / 2, y1: y + h / 2, y2: y + h / 2} : {x1: x + w / 2, x2: x + w / 2, y1: y - h / 2, y2: y + h / 2};
    return {type: 'line', silent: true, shape, style: {stroke: colour.ink, lineWidth: 3, lineCap: 'round'}};
  };
  draw('heat', height + 84, 4 * cells.length, {
    grid: {left: labels + 10, right: 24, top: 34, height},
    xAxis: axis({type: 'category', data: fx.values, ...named(fx.input, 26), axisTick: {show: false}}),
    yAxis: axis({type: 'category', inverse: true, data: fy.values, name: fy.input, nameLocation: 'start', nameGap: 8, nameTextStyle: {color: colour.soft, fontSize: 12, align: 'left', padding: [0, 0, 0, -labels]}, axisTick: {show: false}}),
    series: [
      {type: 'custom', renderItem: cell, data: cells, progressive: 0},
      {type: 'custom', renderItem: edge, data: edges, progressive: 0, silent: true, z: 5, tooltip: {show: false}},
    ],
    tooltip: {...tip(), trigger: 'item', formatter: q => {
      const [i, j] = q.data, set = place({[choice.across]: i, [choice.down]: j});
      return axes.map((a, d) => `${escape(a.input)}=${escape(a.values[set[d]])}`).join('<br>') + '<br>' + told(at(i, j));
    }},
  });
  get('heat').dataset.boundary = edges.length;
  const present = modes.filter(m => cells.some(([i, j]) => modeOf(at(i, j)) === m));
  legend('legend-heat', [...present.reverse().map(m => ['ground', colour[m.colour] + '70', `${m.letter} ${m.name}`]), ...(edges.length ? [['line', colour.ink, sheet.maxDays > 0 ? `${figure(sheet.maxDays)} days that a run may take` : 'the time that a run may take']] : [])]);
  const within = cells.filter(([i, j]) => at(i, j).feasible).length;
  get('caption-heat').textContent = `The stronger the colour, the fewer the days. ${within === cells.length ? 'All are' : within ? `${within} of ${cells.length} are` : 'None is'} within the time that a run may take.`;
}

function render() {
  colour = dark.matches && !printing ? themes.dark : themes.light;
  curves();
  if (axes.length > 1) heat();
  table();
  document.body.dataset.drawn = charts.size;
}

// fill writes rows of words, as the page's template does.
function fill(body, rows) {
  body.replaceChildren(...rows.map(r => {
    const tr = document.createElement('tr'), th = document.createElement('th');
    th.scope = 'row';
    th.textContent = r.what;
    tr.append(th);
    [r.value, r.remark].forEach((text, k) => {
      const td = document.createElement('td');
      td.textContent = text.replaceAll(' %', '\u00a0%').replaceAll(' →', '\u00a0→');
      if (!k) td.className = 'n';
      tr.append(td);
    });
    return tr;
  }));
}

// table writes the points in words, once somebody looks. The first columns are
// the axes', which stay as they were written.
function table() {
  if (!get('table').open) return;
  const cells = get('points').querySelectorAll('td');
  sheet.rows.forEach((row, k) => row.forEach((text, c) => {
    const cell = cells[k * row.length + c];
    if (c >= axes.length && cell.textContent !== text) cell.textContent = text;
  }));
}
get('table').addEventListener('toggle', table);

// show brings all of the page up to the sheet.
function show() {
  get('headline').textContent = sheet.headline;
  const now = sheet.answers[choice.variant];
  get('now').textContent = now.headline;
  const about = document.createElement('small');
  about.textContent = now.about;
  get('now').append(about);
  get('now').dataset.days = sheet.answers.map(a => a.days).join(' ');
  document.querySelectorAll('.run').forEach((section, v) => {
    const a = sheet.answers[v];
    section.hidden = v !== choice.variant;
    section.querySelector('p').replaceChildren(Object.assign(document.createElement('strong'), {textContent: a.headline + '.'}), ' ' + a.about);
    section.querySelector('h3 span').textContent = a.bottleneck;
    fill(section.querySelector('.bounds'), a.bounds);
    fill(section.querySelector('.changes'), a.changes);
    section.querySelector('.warnings').replaceChildren(...a.warnings.map(text => Object.assign(document.createElement('li'), {textContent: text})));
  });
  if (get('replaced')) fill(get('replaced'), sheet.replaced);
  get('command').textContent = ['testbed estimate', ...sheet.settings.map(s => '--set ' + s), data.rest].join(' ');
  controls();
  render();
}

const form = get('inputs');
const fields = Object.keys(data.run).map(name => form.elements[name]).filter(f => f);
const valueOf = f => f.type === 'checkbox' ? f.checked : f.type === 'number' ? f.valueAsNumber : f.value;

// compute asks the program for the sheet of the inputs as they stand.
function compute() {
  const run = {...data.run};
  fields.forEach(f => { run[f.name] = valueOf(f); });
  const answer = globalThis.testbedSheet({run, variants: data.variants, axes: data.axes.map(a => a.text), measurements: data.measurements});
  fields.forEach(f => f.setAttribute('aria-invalid', answer?.field === f.name));
  if (!answer) {
    able(false, 'The program has ended. Reload the page.');
  } else if (answer.problem) {
    get('problem').textContent = answer.problem;
  } else {
    get('problem').textContent = '';
    sheet = answer;
    points = parse(sheet.table);
    show();
  }
}

let due = 0;
function moved() {
  cancelAnimationFrame(due);
  due = requestAnimationFrame(compute);
}

// A slider's places are numbers from low to high, as ratios where low is not 0;
// what it gives has three digits.
function slider(f) {
  const s = get('to-' + f.name);
  if (!s) return;
  const low = +s.dataset.low, high = +s.dataset.high, places = +s.max;
  const value = k => {
    const x = +(low > 0 ? low * (high / low) ** (k / places) : low + (high - low) * k / places).toPrecision(3);
    return s.dataset.whole === 'true' ? Math.round(x) : x;
  };
  const set = () => {
    const x = Math.min(high, Math.max(low, f.valueAsNumber || 0));
    s.value = Math.round(places * (low > 0 ? Math.log(x / low) / Math.log(high / low) : (x - low) / (high - low)));
    s.setAttribute('aria-valuetext', f.value);
  };
  s.addEventListener('input', () => {
    const x = value(+s.value);
    f.value = x >= 1e7 ? x.toExponential() : x;
    s.setAttribute('aria-valuetext', f.value);
    moved();
  });
  f.addEventListener('input', set);
  form.addEventListener('reset', () => setTimeout(set));
  set();
}
fields.forEach(f => {
  slider(f);
  f.addEventListener(f.type === 'number' ? 'input' : 'change', moved);
});
form.addEventListener('reset', () => setTimeout(moved));
form.addEventListener('submit', e => e.preventDefault());

function able(yes, why) {
  get('fields').disabled = !yes;
  get('able').textContent = why;
}

// start runs the program, which leaves the function that compute calls.
async function start() {
  const packed = Uint8Array.from(atob(get('program').textContent.trim()), c => c.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream('gzip'));
  const go = new Go();
  const {instance} = await WebAssembly.instantiate(await new Response(stream).arrayBuffer(), go.importObject);
  go.run(instance);
  able(true, 'Move an input, and everything on this page is computed anew, here in the browser.');
  document.body.dataset.computes = 'yes';
}

if (narrow()) form.querySelectorAll('details').forEach((d, k) => { d.open = k === 2; }); // the network
able(false, 'The program is being started …');
show();
start().catch(() => {
  able(false, 'Inputs cannot be moved here, because the browser runs no WebAssembly program on this page. The page shows the figures that were computed when it was made.');
  document.body.dataset.computes = 'no';
});
