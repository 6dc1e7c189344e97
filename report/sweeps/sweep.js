// Draws a sweep: of one field curves, of more a heat map of two of them. The
// reader chooses the figure, the two fields and the values of the others.
const fields = data.fields.map((f, k) => ({
  ...f, name: f.field,
  // A list may leave a field as it is.
  shown: data.cells.some(c => c[k] < 0) ? [-1, ...f.values.keys()] : [...f.values.keys()],
}));
const valueText = (f, i) => i < 0 ? 'as in the file' : f.values[i];
const choice = {figure: 0, across: 0, down: 1, at: fields.map(f => f.shown[0])};
if (fields.length > 1) { // the last field was varied first, and is read first
  choice.across = fields.length - 1;
  choice.down = fields.length - 2;
}
// A comparison of two policies alone has the colour of the second.
const place = l => data.policies.indexOf(l.policy);
const lineColour = l => policyColour(place(l));
const lineName = l => l.over ? `${l.over} / ${l.policy}` : l.policy;
const scale = f => f.unit === 'µs' ? short : f.even ? n => n.toFixed(2) + '×' : n => String(+n.toFixed(n < 10 ? 2 : n < 100 ? 1 : 0));
const full = f => f.unit === 'µs' ? micros : f.even ? n => n.toFixed(3) + '×' : n => `${+n.toFixed(3)} ${f.unit}`;
const pointText = (f, p) => p ? full(f)(p[0]) + (p.length === 3 ? ` (${full(f)(p[1])} to ${full(f)(p[2])})` : '') : '–';

// controls offers the choices as lists with names.
function controls() {
  const box = get('controls');
  const add = (label, options, value, choose) => {
    const el = document.createElement('label');
    el.append(label + ' ');
    const select = document.createElement('select');
    options.forEach(([v, text]) => select.add(new Option(text, v, false, v === value)));
    select.addEventListener('change', () => { choose(Number(select.value)); controls(); render(); });
    el.append(select);
    box.append(el);
  };
  const focused = [...box.querySelectorAll('select')].indexOf(document.activeElement);
  box.textContent = '';
  if (data.figures.length > 1) add('Figure', data.figures.map((f, k) => [k, f.name]), choice.figure, v => { choice.figure = v; });
  if (fields.length > 2) {
    const names = fields.map((f, k) => [k, f.name]);
    const swap = (mine, other) => v => {
      if (choice[other] === v) choice[other] = choice[mine];
      choice[mine] = v;
    };
    add('across', names, choice.across, swap('across', 'down'));
    add('down', names, choice.down, swap('down', 'across'));
    fields.forEach((f, k) => {
      if (k !== choice.across && k !== choice.down) add(f.name, f.shown.map(i => [i, valueText(f, i)]), choice.at[k], v => { choice.at[k] = v; });
    });
  }
  if (focused >= 0) box.querySelectorAll('select')[focused].focus();
}

// curves draws a figure by the only field, a line for each policy.
function curves(f) {
  const field = fields[0];
  const order = data.cells.map((c, k) => [c[0], k]);
  const numbers = order.map(([i]) => i < 0 ? NaN : Number(field.values[i]));
  const numeric = numbers.every(n => Number.isFinite(n));
  if (numeric) order.sort((a, b) => Number(field.values[a[0]]) - Number(field.values[b[0]]));
  else order.sort((a, b) => a[0] - b[0]);
  const least = Math.min(...numbers), most = Math.max(...numbers);
  const log = numeric && least > 0 && most / least >= 32;
  const x = k => numeric ? Number(field.values[order[k][0]]) : k;
  const series = [];
  f.lines.forEach(l => {
    const fill = lineColour(l), points = order.map(([, k]) => l.points[k]);
    const band = points.some(p => p && p.length === 3);
    if (band) {
      const edge = (stackName, value, area) => series.push({
        type: 'line', stack: stackName, symbol: 'none', silent: true, lineStyle: {opacity: 0}, areaStyle: area, z: 1,
        data: points.map((p, k) => [x(k), p ? value(p) : null]),
      });
      edge('band ' + l.policy, p => p.length === 3 ? p[1] : p[0], undefined);
      edge('band ' + l.policy, p => p.length === 3 ? p[2] - p[1] : 0, {color: fill, opacity: .22});
    }
    series.push({
      type: 'line', name: lineName(l), symbol: policySymbol(place(l)), symbolSize: 7, z: 3,
      lineStyle: {color: fill, width: 2}, itemStyle: {color: fill}, data: points.map((p, k) => [x(k), p ? p[0] : null]),
      ...(f.even ? {markLine: {silent: true, symbol: 'none', animation: false, data: [{yAxis: 1}], lineStyle: {color: colour.median, type: 'dashed'}, label: {show: false}}} : {}),
    });
  });
  const top = f.even ? {max: v => Math.max(v.max, 1.05), min: v => Math.min(v.min, .95)} : {};
  draw('sweep', 340, 0, {
    grid: {left: 76, right: 24, top: 14, bottom: 46},
    xAxis: axis({
      ...(numeric ? {type: log ? 'log' : 'value', min: 'dataMin', max: 'dataMax'} : {type: 'category', data: order.map(([i]) => valueText(field, i))}),
      name: field.name, nameLocation: 'middle', nameGap: 26, nameTextStyle: {color: colour.soft, fontSize: 12}, splitLine: {show: false},
      ...(numeric ? {axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true, customValues: order.map((_, k) => x(k))}, axisTick: {customValues: order.map((_, k) => x(k)), lineStyle: {color: colour.line}}} : {}),
    }),
    yAxis: axis({type: 'value', scale: f.even || f.narrow, ...top, ...yName(f.even ? f.name : `${f.name}${f.unit === 'µs' || f.unit === 'of the task' ? '' : ', ' + f.unit}`), axisLabel: {color: colour.soft, fontSize: 11, formatter: scale(f)}}),
    series,
    tooltip: {
      trigger: 'axis', confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12},
      formatter: ps => {
        const [i, k] = order[ps[0].dataIndex];
        return `<b>${escape(field.name)}=${escape(valueText(field, i))}</b>` + f.lines.map(l => `<br>${escape(lineName(l))}: ${escape(pointText(f, l.points[k]))}`).join('');
      },
    },
  });
  const bands = f.lines.some(l => l.points.some(p => p && p.length === 3));
  legend('legend-sweep', [
    ...f.lines.map(l => ['line', lineColour(l), (l.over ? 'speed-up, ' : '') + lineName(l)]),
    ...(bands ? [['ground', colour['inner step'] + '38', 'interval of the median']] : []),
    ...(f.even ? [['dashes', colour.median, 'neither is faster']] : []),
  ]);
}

// Ramps on which the page's ink can be read.
const ramps = {
  light: {low: '#f2b56b', even: '#ffffff', high: '#7db8e8'},
  dark: {low: '#7a4a12', even: '#1a212a', high: '#1d5f96'},
};

// heat draws a figure by two fields, a map for each policy, two beside one
// another where there is room.
function heat(f) {
  const ramp = colour === themes.dark ? ramps.dark : ramps.light;
  const [fx, fy] = [fields[choice.across], fields[choice.down]];
  const visible = data.cells.map((c, k) => [c, k]).filter(([c]) => c.every((i, d) => d === choice.across || d === choice.down || i === choice.at[d]));
  const columns = f.lines.length > 1 && !narrow() ? 2 : 1;
  const width = printing ? paper : get('sweep').clientWidth;
  const row = fy.shown.length > 30 ? 18 : 34, height = fy.shown.length * row;
  const labels = Math.min(14 + 7 * Math.max(...fy.shown.map(i => valueText(fy, i).length), 3), 120);
  const each = width / columns - labels - 22;
  const room = each / fx.shown.length;
  // Ratios lie around 1 by their logarithm, so that half is as far as double.
  const shade = v => f.even ? Math.log2(v) : v;
  const all = f.lines.flatMap(l => l.points.filter(p => p).map(p => shade(p[0])));
  let least = Math.min(...all), most = Math.max(...all);
  const both = f.even && least < 0; // there are cells on either side of 1
  if (both) { most = Math.max(most, -least, .1); least = -most; }
  if (!all.length) { least = 0; most = 1; }
  if (least === most) least = most - 1;
  const step = height + 92, top = k => Math.floor(k / columns) * step, left = k => k % columns * width / columns;
  draw('sweep', step * Math.ceil(f.lines.length / columns), visible.length * f.lines.length, {
    title: f.lines.map((l, k) => ({...title(lineName(l), top(k)), left: left(k)})),
    grid: f.lines.map((_, k) => ({left: left(k) + labels + 10, width: each, top: top(k) + 42, height})),
    xAxis: f.lines.map((_, k) => axis({gridIndex: k, type: 'category', data: fx.shown.map(i => valueText(fx, i)), name: fx.name, nameLocation: 'middle', nameGap: 26, nameTextStyle: {color: colour.soft, fontSize: 12}, axisTick: {show: false}})),
    yAxis: f.lines.map((_, k) => axis({gridIndex: k, type: 'category', inverse: true, data: fy.shown.map(i => valueText(fy, i)), name: fy.name, nameLocation: 'start', nameGap: 8,
      nameTextStyle: {color: colour.soft, fontSize: 12, align: 'left', padding: [0, 0, 0, -labels]}, axisTick: {show: false}})),
    visualMap: {show: false, min: least, max: most, dimension: 2, inRange: {color: both ? [ramp.low, ramp.even, ramp.high] : [ramp.even, ramp.high]}},
    series: f.lines.map((l, k) => ({
      type: 'heatmap', xAxisIndex: k, yAxisIndex: k, progressive: 0, itemStyle: {borderColor: colour.line, borderWidth: 1},
      data: visible.filter(([, n]) => l.points[n]).map(([c, n]) => {
        const p = l.points[n], even = f.even && p.length === 3 && p[1] <= 1 && p[2] >= 1;
        return {
          value: [fx.shown.indexOf(c[choice.across]), fy.shown.indexOf(c[choice.down]), shade(p[0])], cell: n,
          label: {show: room > 44 && row > 20, color: colour.ink, fontSize: 11, formatter: scale(f)(p[0]) + (even ? ' =' : '')},
        };
      }),
    })),
    tooltip: {
      trigger: 'item', confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12},
      formatter: p => fields.map((d, i) => `${escape(d.name)}=${escape(valueText(d, data.cells[p.data.cell][i]))}`).join('<br>')
        + f.lines.map(l => `<br><b>${escape(lineName(l))}: ${escape(pointText(f, l.points[p.data.cell]))}</b>`).join(''),
    },
  });
  const text = v => scale(f)(f.even ? 2 ** v : v);
  legend('legend-sweep', [
    ['ground', both ? ramp.low : ramp.even, text(least)], ...(both ? [['ground', ramp.even, 'neither is faster']] : []), ['ground', ramp.high, text(most)],
  ]);
}

// lossCurves draws the loss of one cell under all policies, or of all cells under
// one policy.
let shownCurves = 0;
const most = 12; // lines that a picture can have
const views = data.curves ? [
  ...data.policies.map((p, k) => ({name: data.cells.length > 1 ? `${p}: all cells` : p, of: c => c.policy === k, line: c => data.cell_names[c.cell], place: c => c.cell})),
  ...data.cells.map((_, k) => ({name: `${data.cell_names[k]}: all policies`, of: c => c.cell === k, line: c => data.policies[c.policy], place: c => c.policy})),
].filter(v => data.curves.some(v.of)) : [];
if (views.length) shownCurves = Math.max(0, views.findIndex(v => v.name.endsWith(': all policies'))); // one of them at least has a cell

function lossControls() {
  const box = get('loss-controls'), el = document.createElement('label'), select = document.createElement('select');
  if (views.length < 2 || data.cells.length < 2) return;
  views.forEach((v, k) => select.add(new Option(v.name, k, false, k === shownCurves)));
  select.addEventListener('change', () => { shownCurves = Number(select.value); render(); });
  el.append('Show ', select);
  box.append(el);
}

function lossCurves() {
  const view = views[shownCurves], lines = data.curves.filter(view.of).slice(0, most);
  const later = lines.flatMap(l => l.points.filter(q => q.round > 0).flatMap(q => [q.least, q.most]));
  const least = Math.min(data.target, ...later), top = Math.max(data.target, ...later), room = (top - least || Math.abs(top) || 1) * .05;
  const series = [];
  lines.forEach((l, n) => {
    const k = view.place(l), fill = policyColour(k);
    if (l.points.some(q => q.most > q.least)) {
      const edge = (value, area) => series.push({
        type: 'line', stack: 'band ' + n, stackStrategy: 'all', symbol: 'none', silent: true, lineStyle: {opacity: 0}, areaStyle: area, z: 1, data: l.points.map(q => [q.wall_clock_us, value(q)]),
      });
      edge(q => q.least, undefined);
      edge(q => q.most - q.least, {color: fill, opacity: .18});
    }
    series.push({
      type: 'line', name: view.line(l), symbol: l.points.length > 60 ? 'none' : policySymbol(k), symbolSize: 5, z: 3,
      lineStyle: {color: fill, width: 2}, itemStyle: {color: fill}, data: l.points.map(q => ({value: [q.wall_clock_us, q.loss], point: q})),
    });
  });
  series.push({type: 'line', silent: true, symbol: 'none', data: [], markLine: {
    silent: true, symbol: 'none', animation: false, label: {show: false}, lineStyle: {color: colour.median, type: 'dashed', width: 1}, data: [{yAxis: data.target}],
  }});
  draw('curves', 340, lines.reduce((n, l) => n + l.points.length, 0), {
    grid: {left: 66, right: 24, top: 14, bottom: 46},
    xAxis: axis({type: 'value', min: 0, name: 'scenario time', nameLocation: 'middle', nameGap: 26, nameTextStyle: {color: colour.soft, fontSize: 12},
      axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true, showMaxLabel: false, formatter: short}}),
    yAxis: axis({type: 'value', scale: true, min: least - room, max: top + room, ...yName('validation loss'),
      axisLabel: {color: colour.soft, fontSize: 11, showMinLabel: false, showMaxLabel: false, formatter: v => +v.toPrecision(3)}}),
    series,
    tooltip: {
      trigger: 'item', confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12},
      formatter: p => `<b>${escape(p.seriesName)}</b><br>outer step ${p.data.point.round}: ${p.data.point.loss.toPrecision(4)}<br>after ${short(p.data.point.wall_clock_us)}`,
    },
  });
  const shapes = {rect: 'bar', circle: 'dot', triangle: 'triangle', diamond: 'diamond'};
  legend('legend-curves', [
    ...lines.map(l => [shapes[policySymbol(view.place(l))] || 'bar', policyColour(view.place(l)), view.line(l)]),
    ['dashes', colour.median, 'the target loss'],
    ...(data.curves.filter(view.of).length > most ? [['ground', colour.line, `curves that are not drawn: ${data.curves.filter(view.of).length - most}`]] : []),
  ]);
}

function render() {
  colour = dark.matches && !printing ? themes.dark : themes.light;
  if (get('sweep')) { // a sweep over seeds alone has nothing to draw
    const f = data.figures[choice.figure];
    (fields.length === 1 ? curves : heat)(f);
    get('caption').textContent = `${f.name}, ${f.unit}: ${f.what} over the runs of a cell`
      + (f.even && fields.length > 1 ? '. “=” means that no difference is shown.' : '.');
  }
  if (get('curves')) lossCurves();
  document.body.dataset.drawn = charts.size;
}

if (get('sweep')) controls();
if (get('curves')) lossControls();
render();
