// Draws programs: a lane for each node, and quantities of nodes over time.
const laneHeight = 34;
const grounds = ['slowed down', 'cut off', 'link changed', 'paused', 'dead'];
const clockLine = () => data.clock === null ? {} : {markLine: {
  silent: true, symbol: 'none', animation: false, label: {show: false},
  lineStyle: {color: colour.median, type: 'dashed', width: 1.5}, data: [{xAxis: data.clock}],
}};
const timeAxis = extra => axis({
  type: 'value', min: 0, max: data.end || 1, name: 'real time', nameLocation: 'middle', nameGap: 26, nameTextStyle: {color: colour.soft, fontSize: 12},
  axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true, showMaxLabel: false, formatter: short}, ...extra,
});

// bar draws a span of a lane: a program over the middle, a condition behind it.
function bar(params, api) {
  const row = api.value(2), from = api.coord([api.value(0), row]), to = api.coord([api.value(1), row]);
  const height = api.size([0, 1])[1] * (api.value(3) ? .42 : .86);
  const box = echarts.graphic.clipRectByRect(
    {x: from[0], y: from[1] - height / 2, width: Math.max(to[0] - from[0], 1.5), height},
    {x: params.coordSys.x, y: params.coordSys.y, width: params.coordSys.width, height: params.coordSys.height});
  return box && {type: 'rect', shape: box, style: api.style()};
}

function lanes() {
  const row = new Map(data.nodes.map((n, k) => [n, k]));
  const spans = (data.spans || []).filter(s => row.has(s.node));
  const items = program => spans.filter(s => (s.is === 'program runs') === program).map(s => ({
    value: [s.from, s.to, row.get(s.node), program ? 1 : 0],
    itemStyle: {color: program ? colour['inner step'] : colour[s.is], borderColor: program ? colour.paper : colour.line, borderWidth: program ? 0 : .5},
    what: `<b>${escape(s.node)}</b>: ${escape(s.is)}${s.text ? ', ' + escape(s.text) : ''}<br>${short(s.from)} to ${short(s.to)}`,
  }));
  const kinds = {mark: ['circle', 6, colour.decision], inject: ['diamond', 11, colour.fault], exit: ['triangle', 9, colour.soft]};
  const marks = kind => (data.marks || []).filter(m => m.what === kind && row.has(m.node)).map(m => ({
    value: [m.at, row.get(m.node)], what: `<b>${escape(m.node)}</b>: ${escape(m.text)}<br>after ${short(m.at)}`,
  }));
  const series = [
    {type: 'custom', renderItem: bar, data: items(false), encode: {x: [0, 1], y: 2}, z: 1, clip: true},
    {type: 'custom', renderItem: bar, data: items(true), encode: {x: [0, 1], y: 2}, z: 2, clip: true, ...clockLine()},
    ...Object.entries(kinds).map(([kind, [symbol, size, fill]]) => ({
      type: 'scatter', symbol, symbolSize: size, data: marks(kind), z: 3, itemStyle: {color: fill, borderColor: colour.paper, borderWidth: .7},
    })),
  ];
  const count = spans.length + (data.marks || []).length;
  draw('lanes', data.nodes.length * laneHeight + 62, count, {
    grid: {left: 96, right: 24, top: 10, bottom: 46},
    xAxis: timeAxis(),
    yAxis: axis({type: 'category', data: data.nodes, inverse: true, axisLabel: {color: colour.ink, fontSize: 12}, splitLine: {show: false}}),
    series,
    tooltip: {trigger: 'item', confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12}, formatter: p => p.data.what},
  });
  const seen = grounds.filter(g => spans.some(s => s.is === g));
  legend('legend-lanes', [
    ['bar', colour['inner step'], 'program runs'], ...seen.map(g => ['ground', colour[g], g]),
    ...[['dot', 'mark'], ['diamond', 'inject'], ['triangle', 'exit']].filter(([, kind]) => marks(kind).length).map(([shape, kind]) => [shape, kinds[kind][2], kind]),
    ...(data.clock === null ? [] : [['dashes', colour.median, "start of the scenario's clock"]]),
  ]);
}

// curves draws a quantity of the nodes over time.
function curves(id, list, name, unit) {
  const place = c => Math.max(data.nodes.indexOf(c.node), 0);
  draw(id, 260, list.reduce((n, c) => n + c.points.length, 0), {
    grid: {left: 66, right: 24, top: 14, bottom: 46},
    xAxis: timeAxis(),
    yAxis: axis({type: 'value', min: id === 'losses' ? undefined : 0, scale: id === 'losses', ...yName(name), axisLabel: {color: colour.soft, fontSize: 11}}),
    series: list.map((c, k) => ({
      type: 'line', name: c.node, symbol: policySymbol(place(c)), symbolSize: 5, showSymbol: c.points.length < 80,
      lineStyle: {color: policyColour(place(c)), width: 1.8, type: place(c) % 2 ? 'dashed' : 'solid'}, itemStyle: {color: policyColour(place(c))}, data: c.points,
      ...(k ? {} : clockLine()),
    })),
    tooltip: {
      trigger: 'item', confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12},
      formatter: p => `<b>${escape(p.seriesName)}</b>: ${+p.value[1].toPrecision(3)} ${unit}<br>after ${short(p.value[0])}`,
    },
  });
  legend('legend-' + id, list.map(c => [place(c) % 2 ? 'dashes' : 'line', policyColour(place(c)), c.node]));
}

function render() {
  colour = dark.matches && !printing ? themes.dark : themes.light;
  if (get('lanes')) lanes();
  if (get('sent')) curves('sent', data.sent, 'Mbit/s', 'Mbit/s');
  if (get('received')) curves('received', data.received, 'Mbit/s', 'Mbit/s');
  if (get('shares')) curves('shares', data.shares, 'processors', 'processors');
  if (get('losses')) curves('losses', data.losses, 'loss', '');
  document.body.dataset.drawn = charts.size;
}
render();
