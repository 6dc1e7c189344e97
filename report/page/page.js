// Draws the pictures of the report of runs from its data block.
const sideTitle = side => side.policy + (side.world === 'sim' ? ', simulated' : ', measured');

// Share of a row's height.
const heights = {'inner step': .56, 'inner step, dropped': .56, waiting: .12, 'reduce-scatter': .56, 'all-gather': .56, 'all-reduce': .56, 'state fetch': .56};
const decisions = new Set(['sideline', 'evict', 'rejoin', 'reject', 'reduce_abort', 'horizon']);

const left = sides => 14 + 7 * Math.max(...sides.flatMap(s => labels(s.timeline).map(n => n.length)));

// hostStarts are the rows where a host begins, each with its name; none where all
// nodes are on one.
const hostStarts = t => (t.hosts ?? []).map(h => [t.nodes.findIndex(n => h.nodes.includes(n)), h.name]).filter(([row]) => row >= 0);

// labels names the rows: the first one of a host says which that is.
const labels = t => {
  const starts = new Map(hostStarts(t));
  return t.nodes.map((n, i) => starts.has(i) ? `${cut(starts.get(i))}: ${n}` : n);
};
const cut = name => name.length > 18 ? name.slice(0, 17) + '…' : name;

// timeline draws a row for each worker, one picture above the other.
function timeline() {
  const sides = data.sides;
  const end = Math.max(...sides.map(s => s.timeline.end_us));
  const most = Math.max(...sides.map(s => s.timeline.nodes.length));
  const row = most > 24 ? 16 : most > 10 ? 24 : 34;
  const grid = [], xAxis = [], yAxis = [], series = [], titles = [];
  const present = new Set();
  let top = 0, shapes = 0;
  sides.forEach((side, k) => {
    const t = side.timeline, height = t.nodes.length * row;
    titles.push(title(`${sideTitle(side)}: ${short(t.end_us)}`, top));
    grid.push({left: left(sides), right: 28, top: top + 36, height});
    const last = k === sides.length - 1;
    xAxis.push(axis({
      gridIndex: k, type: 'value', min: 0, max: end, axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true, showMaxLabel: false, formatter: short},
      splitNumber: narrow() ? 3 : 8, splitLine: {show: false},
    }));
    yAxis.push(axis({gridIndex: k, type: 'category', data: labels(t), inverse: true, axisTick: {show: false}, splitLine: {show: true, lineStyle: {color: colour.line, opacity: .35}}}));
    const rowOf = new Map(t.nodes.map((n, i) => [n, i]));
    const bars = (spans, z, each) => series.push({
      type: 'custom', xAxisIndex: k, yAxisIndex: k, z, clip: true, progressive: 0, encode: {x: [1, 2], y: 0},
      data: spans.map(s => ({value: [rowOf.get(s.node), s.start_us, s.end_us], span: s})),
      tooltip: {formatter: p => spanText(p.data.span)},
      renderItem: (params, api) => each(spans[params.dataIndex], params, api),
    });
    series.push({
      type: 'custom', xAxisIndex: k, yAxisIndex: k, z: 2, silent: true, clip: false, encode: {y: 0},
      data: hostStarts(t).filter(([at]) => at > 0).map(([at]) => [at]),
      renderItem: (params, api) => {
        const y = Math.round(api.coord([0, api.value(0)])[1] - row / 2), {x, width} = params.coordSys;
        return {type: 'line', shape: {x1: x - left(sides) + 8, y1: y, x2: x + width, y2: y}, style: {stroke: colour.soft, lineWidth: 1}};
      },
    });
    bars(t.standing, 1, ground);
    bars(t.doing, 3, bar);
    t.standing.forEach(s => present.add(s.kind));
    t.doing.forEach(s => present.add(s.kind));
    shapes += t.standing.length + t.doing.length;
    const ends = side.rounds.length <= 200 ? side.rounds : [];
    const pixels = ((printing ? paper : get('timeline').clientWidth) - left(sides) - 28) / Math.max(end, 1);
    let labelled = -Infinity;
    const roomFor = at => { // a label of a round needs room
      if ((at - labelled) * pixels < 58) return false;
      labelled = at;
      return true;
    };
    series.push({
      type: 'scatter', xAxisIndex: k, yAxisIndex: k, z: 5, symbolSize: row < 20 ? 8 : 11, progressive: 0, clip: false,
      data: t.marks.filter(m => m.node && rowOf.has(m.node)).map(m => ({
        value: [m.t_us, rowOf.get(m.node)], mark: m,
        symbol: decisions.has(m.type) ? 'triangle' : 'diamond', symbolRotate: 180,
        symbolOffset: [0, -row / 2 + 4], itemStyle: {color: decisions.has(m.type) ? colour.decision : colour.fault, borderColor: colour.paper, borderWidth: 1},
      })),
      tooltip: {formatter: p => p.data.mark ? `<b>${micros(p.data.mark.t_us)}</b><br>${escape(p.data.mark.text)}` : ''},
      markLine: {
        silent: true, symbol: 'none', animation: false,
        label: {color: colour.soft, fontSize: 10, position: 'start', distance: 3},
        data: ends.map(r => ({
          xAxis: r.end_us, lineStyle: {color: colour.soft, type: 'dashed', width: 1, opacity: .7},
          label: {show: roomFor(r.end_us), formatter: 'round ' + r.round},
        })).concat(t.marks.filter(m => !m.node).map(m => ({
          xAxis: m.t_us, lineStyle: {color: decisions.has(m.type) ? colour.decision : colour.fault, type: 'solid', width: 1.5},
          label: {show: false},
        }))),
      },
    });
    // What became of a worker stands beside its row, where a shorter run
    // leaves room.
    if ((end - t.end_us) * pixels > 200) {
      series.push({
        type: 'scatter', xAxisIndex: k, yAxisIndex: k, symbolSize: 0, silent: true, clip: true,
        data: t.nodes.map((n, i) => ({value: [t.end_us, i], label: {
          show: true, position: 'right', distance: 8, color: colour.ink, fontSize: 11, formatter: fate(side, n), overflow: 'break', width: (end - t.end_us) * pixels - 16, lineHeight: 13,
        }})),
      });
    }
    if (t.marks.length) present.add('marks');
    top += 36 + height + (last ? 26 : 34);
  });
  const indexes = sides.map((_, k) => k);
  draw('timeline', top + 34, shapes, {
    title: titles, grid, xAxis, yAxis, series,
    tooltip: {
      trigger: 'item', confine: true, backgroundColor: colour.paper, borderColor: colour.line,
      extraCssText: 'max-width:22rem;white-space:normal', textStyle: {color: colour.ink, fontSize: 12},
    },
    dataZoom: printing ? [] : [
      {type: 'inside', xAxisIndex: indexes, filterMode: 'none', zoomOnMouseWheel: 'ctrl', moveOnMouseMove: 'shift', moveOnMouseWheel: false, preventDefaultMouseMove: false, disabled: narrow()},
      {type: 'slider', xAxisIndex: indexes, filterMode: 'none', height: 18, bottom: 2, left: left(sides), right: 28,
        borderColor: colour.line, fillerColor: 'rgba(128,128,128,.18)', showDetail: false, brushSelect: false,
        dataBackground: {lineStyle: {opacity: 0}, areaStyle: {opacity: 0}}, selectedDataBackground: {lineStyle: {opacity: 0}, areaStyle: {opacity: 0}}, handleStyle: {color: colour.soft}},
    ],
  });
  legend('legend-timeline', [
    ...Object.keys(heights).filter(k => present.has(k)).map(k => [k === 'waiting' ? 'thin' : 'bar', colour[k], k]),
    ...['slowed down', 'cut off', 'paused', 'link changed', 'sidelined', 'dead', 'evicted'].filter(k => present.has(k)).map(k => ['ground', colour[k], k]),
    ...(present.has('marks') ? [['diamond', colour.fault, 'event of the scenario'], ['triangle', colour.decision, 'decision']] : []),
  ]);
}

// fate says who was left out and who is gone.
function fate(side, node) {
  const rounds = type => side.timeline.marks.filter(m => m.node === node && m.type === type).map(m => m.round).filter(n => n);
  const all = (what, list) => list.length ? [`${what} in round${list.length > 1 ? 's' : ''} ${list.slice(0, 8).join(', ')}${list.length > 8 ? ' …' : ''}`] : [];
  const gone = side.timeline.marks.filter(m => m.node === node && (m.type === 'crash' || m.type === 'leave')).map(m => m.type === 'crash' ? 'crashed' : 'left');
  const text = [...all('sidelined', rounds('sideline')), ...gone, ...all('evicted', rounds('evict'))].join('; ');
  return text && `${node} ${text}`;
}

function spanText(s) {
  return `<b>${escape(s.node)}: ${escape(s.kind)}</b>${s.round ? `, round ${s.round}` : ''}<br>${micros(s.start_us)} to ${micros(s.end_us)}, ${micros(s.end_us - s.start_us)}`
    + (s.note ? `<br>${escape(s.note)}` : '');
}

function box(params, api, share) {
  const [x0, y] = api.coord([api.value(1), api.value(0)]), x1 = api.coord([api.value(2), api.value(0)])[0];
  const h = api.size([0, 1])[1] * share;
  return echarts.graphic.clipRectByRect({x: x0, y: y - h / 2, width: Math.max(x1 - x0, 1), height: h}, params.coordSys);
}

function bar(span, params, api) {
  const shape = box(params, api, heights[span.kind]);
  if (!shape) return;
  if (shape.width > 3) shape.width -= 1; // neighbours stay apart
  return {type: 'rect', shape, style: {fill: colour[span.kind]}};
}

function ground(span, params, api) {
  const shape = box(params, api, .96);
  if (!shape) return;
  const label = span.kind === 'slowed down' ? 'slowed' : span.kind;
  const rect = {type: 'rect', shape, style: {fill: colour[span.kind]}};
  const busy = span.kind !== 'evicted' && span.kind !== 'dead';
  if (shape.width < label.length * 6 + 16 || shape.height < (busy ? 24 : 14)) return rect;
  return {type: 'group', children: [rect, {
    type: 'text', silent: true, z2: 1,
    style: {
      text: label, x: shape.x + (busy ? 7 : shape.width / 2), y: shape.y + (busy ? 0 : shape.height / 2),
      align: busy ? 'left' : 'center', verticalAlign: busy ? 'top' : 'middle', fill: colour.ink, fontSize: busy ? 9 : 12,
    },
  }]};
}

// stack gives each side a picture of its own, two beside one another where there
// is room.
function stack(sides, height) {
  const columns = sides.length > 1 && !narrow() ? 2 : 1;
  const width = get('timeline').clientWidth;
  const top = k => Math.floor(k / columns) * height;
  return {
    total: height * Math.ceil(sides.length / columns),
    at: k => columns > 1
      ? {left: k % 2 * width / 2 + 72, width: width / 2 - 92, top: top(k) + 30, height: height - 62}
      : {left: 72, right: 14, top: top(k) + 30, height: height - 62},
    title: (k, text) => ({...title(text, top(k)), left: columns > 1 ? k % 2 * width / 2 : 0}),
  };
}

function roundLengths() {
  const sides = data.sides, place = stack(sides, 260);
  const most = Math.max(1, ...sides.flatMap(s => s.rounds.concat(s.simulated)).map(r => r.end_us - r.start_us));
  const series = [];
  const simulated = sides.some(s => s.simulated.length);
  sides.forEach((side, k) => {
    const names = side.rounds.map(r => r.round);
    const add = (name, stackName, list, value, style) => series.push({
      type: 'bar', name, stack: stackName + k, xAxisIndex: k, yAxisIndex: k, barMaxWidth: 28, barGap: '15%', itemStyle: style,
      data: names.map(n => { const r = list.find(r => r.round === n); return r ? value(r) : null; }),
    });
    const collect = r => r.close_us - r.start_us, reduce = r => r.end_us - r.close_us;
    if (side.simulated.length) {
      const faint = c => ({color: 'transparent', borderColor: c, borderWidth: 1.5});
      add('simulated, until the close', 's', side.simulated, collect, faint(colour['inner step']));
      add('simulated, all-reduce', 's', side.simulated, reduce, faint(colour['reduce-scatter']));
    }
    const what = side.world === 'sim' ? 'simulated' : 'measured';
    add(what + ', until the close', 'm', side.rounds, collect, {color: colour['inner step']});
    add(what + ', all-reduce', 'm', side.rounds, reduce, {color: colour['reduce-scatter']});
  });
  draw('rounds', place.total, sides.reduce((n, s) => n + 4 * s.rounds.length, 0), {
    title: sides.map((s, k) => place.title(k, sideTitle(s))),
    grid: sides.map((_, k) => place.at(k)),
    xAxis: sides.map((s, k) => axis({gridIndex: k, type: 'category', data: s.rounds.map(r => r.round), name: 'round', nameLocation: 'middle', nameGap: 18, nameTextStyle: {color: colour.soft, fontSize: 11}})),
    yAxis: sides.map((_, k) => axis({gridIndex: k, type: 'value', max: niceAbove(most), ...yName('scenario time'), axisLabel: {color: colour.soft, fontSize: 11, formatter: short}})),
    series,
    tooltip: {
      trigger: 'axis', confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12},
      formatter: ps => `<b>round ${escape(ps[0].axisValue)}</b>` + ps.map(p => `<br>${escape(p.seriesName)}: ${p.value == null ? '–' : micros(p.value)}`).join(''),
    },
  });
  const what = sides[0].world === 'sim' ? 'simulated' : 'measured';
  legend('legend-rounds', [
    ['bar', colour['inner step'], what + ': until the round closed'], ['bar', colour['reduce-scatter'], what + ': all-reduce'],
    ...(simulated ? [['ring', colour['inner step'], 'simulated (outlined)']] : []),
  ]);
}

function niceAbove(n) {
  const step = 10 ** Math.floor(Math.log10(n)) / 2;
  return Math.ceil(n * 1.02 / step) * step;
}

function arrivals() {
  const sides = data.sides, place = stack(sides, 300), series = [];
  const drawn = offset => Math.max(1, offset);
  const top = 2 * Math.max(10, ...sides.flatMap(s => s.rounds.flatMap(r => r.arrivals.map(a => a.offset_us).concat(r.deadline ? r.deadline.offset_us : 0))));
  const seen = {late: false, missing: false, deadline: false};
  sides.forEach((side, k) => {
    const nodes = side.timeline.nodes, lane = new Map(nodes.map((n, i) => [n, nodes.length > 1 ? (i / (nodes.length - 1) - .5) * .6 : 0]));
    const points = [], lines = [], crowded = nodes.length * side.rounds.length > 1000;
    for (const r of side.rounds) {
      const median = r.median_us == null ? 0 : r.median_us;
      for (const a of r.arrivals) {
        const far = a.offset_us > 10 * Math.max(median, 10);
        seen.late = seen.late || a.late;
        points.push({
          value: [r.round + lane.get(a.node), drawn(a.offset_us)], symbol: a.late ? 'emptyCircle' : 'circle',
          text: `<b>${escape(a.node)}</b> in round ${r.round}: ${micros(a.offset_us)} after the first arrival${a.late ? ', late' : ''}`,
          label: {show: (far || a.late) && !crowded, formatter: a.node, position: 'left', color: colour.ink, fontSize: 11},
        });
      }
      const there = new Set(r.arrivals.map(a => a.node));
      for (const n of r.left_out.filter(n => lane.has(n) && !there.has(n))) {
        seen.missing = true;
        points.push({
          value: [r.round + lane.get(n), top], symbol: 'path://M0 0L10 10M10 0L0 10', symbolSize: 9, itemStyle: {color: 'none', borderColor: colour.fault, borderWidth: 2},
          text: `<b>${escape(n)}</b> had not arrived when round ${r.round} was over`,
          label: {show: !crowded, formatter: n, position: 'left', color: colour.ink, fontSize: 11},
        });
      }
      if (r.median_us != null) lines.push([r.round, drawn(r.median_us), 'median', `median of the arrivals of round ${r.round}: ${micros(r.median_us)}`]);
      if (r.deadline) {
        seen.deadline = true;
        const d = r.deadline, credit = d.credit_us || 0;
        const why = d.k != null ? ` = the larger of ${micros(d.min_slack_us)} and median ${micros(d.median_us)} + ${d.k} × MAD ${micros(d.mad_us)}`
          : Object.entries(d.numbers || {}).map(([name, n]) => `, ${name}=${n}`).join('');
        lines.push([r.round, drawn(d.offset_us), 'deadline', `deadline of round ${r.round}: ${micros(d.offset_us)} after the first arrival${why}`
          + (credit ? `, and ${micros(credit)} of credit for catching up` : '')]);
      }
    }
    series.push({
      type: 'custom', xAxisIndex: k, yAxisIndex: k, z: 1, encode: {x: 0, y: 1}, data: lines, tooltip: {formatter: p => escape(p.value[3])},
      renderItem: (params, api) => {
        const kind = lines[params.dataIndex][2];
        const a = api.coord([api.value(0) - .42, api.value(1)]), b = api.coord([api.value(0) + .42, api.value(1)]);
        return {type: 'line', shape: {x1: a[0], y1: a[1], x2: b[0], y2: b[1]}, style: {stroke: colour[kind], lineWidth: kind === 'deadline' ? 2.5 : 1.5, lineDash: kind === 'deadline' ? [6, 3] : null}};
      },
    });
    series.push({
      type: 'scatter', xAxisIndex: k, yAxisIndex: k, z: 3, symbolSize: points.length > 1000 ? 4 : 8, progressive: 0, itemStyle: {color: colour['inner step']}, data: points, labelLayout: {hideOverlap: true},
      tooltip: {formatter: p => p.data.text},
    });
  });
  draw('arrivals', place.total, sides.reduce((n, s) => n + s.rounds.reduce((m, r) => m + r.arrivals.length, 0), 0), {
    title: sides.map((s, k) => place.title(k, sideTitle(s))),
    grid: sides.map((_, k) => place.at(k)),
    xAxis: sides.map((s, k) => {
      const first = s.rounds.length ? s.rounds[0].round : 1, last = s.rounds.length ? s.rounds[s.rounds.length - 1].round : 1;
      return axis({gridIndex: k, type: 'value', min: first - .5, max: last + .5, minInterval: 1, splitLine: {show: false}, name: 'round', nameLocation: 'middle', nameGap: 18,
        nameTextStyle: {color: colour.soft, fontSize: 11},
        axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true, customValues: s.rounds.map(r => r.round)}, axisTick: {customValues: s.rounds.map(r => r.round), lineStyle: {color: colour.line}}});
    }),
    yAxis: sides.map((_, k) => axis({gridIndex: k, type: 'log', min: 1, max: 2 * top, ...yName('after the first arrival'), axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true, formatter: v => v > top ? '' : short(v)}})),
    series,
  });
  legend('legend-arrivals', [
    ['dot', colour['inner step'], 'arrival of a worker'],
    ...(seen.late ? [['ring', colour['inner step'], 'arrival after the round had closed']] : []),
    ...(seen.missing ? [['cross', colour.fault, 'left out, had not arrived when the round was over']] : []),
    ['line', colour.median, 'median of the arrivals in time'],
    ...(seen.deadline ? [['dashes', colour.deadline, 'deadline']] : []),
  ]);
}

function links() {
  const sides = data.sides.filter(s => s.links.length);
  // Of two policies the first is blue, as it has been; more have their own.
  const fills = sides.length > 2 ? sides.map((_, k) => policyColour(k)) : [colour['inner step'], colour['reduce-scatter']];
  const names = [...new Set(sides.flatMap(s => s.links.map(l => `${l.from} → ${l.to}`)))];
  const series = sides.map((side, k) => ({
    type: 'bar', name: side.policy, barMaxWidth: 14, itemStyle: {color: fills[k]},
    data: names.map(n => { const l = side.links.find(l => `${l.from} → ${l.to}` === n); return l ? l.goodput_bps / 1e6 : null; }),
  }));
  const rate = new Map(sides.flatMap(s => s.links.map(l => [`${l.from} → ${l.to}`, l.rate_bps / 1e6])));
  series.push({
    type: 'scatter', name: 'rate', symbol: 'rect', symbolSize: [2.5, 24], itemStyle: {color: colour.fault}, z: 4,
    data: names.filter(n => rate.get(n)).map(n => [rate.get(n), n]),
  });
  draw('links', 60 + names.length * (sides.length * 15 + 12), names.length, {
    grid: {left: 12 + 7 * Math.max(...names.map(n => n.length)), right: 24, top: 8, bottom: 42},
    xAxis: axis({type: 'value', min: 0, name: 'Mbit/s', nameLocation: 'middle', nameGap: 24, nameTextStyle: {color: colour.soft, fontSize: 11}}),
    yAxis: axis({type: 'category', data: names, inverse: true, axisTick: {show: false}}),
    series,
    tooltip: {
      trigger: 'item', confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12},
      formatter: p => p.seriesName === 'rate' ? `${escape(p.value[1])}: rate ${p.value[0]} Mbit/s` : `${escape(p.name)}, ${escape(p.seriesName)}: ${p.value.toFixed(1)} Mbit/s`,
    },
  });
  legend('legend-links', [
    ...sides.map((s, k) => ['bar', fills[k], s.policy]),
    ...([...rate.values()].some(r => r) ? [['tick', colour.fault, 'rate of the narrower access link']] : []),
  ]);
}

const worldNames = {sim: 'simulated', sim_links: 'on planned links', real: 'measured'};
const worldDashes = {sim: [2, 4], sim_links: [8, 4], real: 'solid'};

// trade draws wall-clock against work lost, a point for each policy and world,
// and the Pareto front of each world. Measured points are filled.
function trade() {
  const known = data.trade.filter(s => s.lost != null && s.wall_clock_us.n);
  const policies = [...new Set(data.trade.map(s => s.policy))];
  const worlds = Object.keys(worldNames).filter(w => known.some(s => s.world === w));
  const last = worlds[worlds.length - 1]; // filled: measured, if anything was
  const at = s => [s.wall_clock_us.median, 100 * s.lost];
  const series = worlds.map(w => ({
    type: 'line', name: w, silent: true, symbol: 'none', step: 'end', z: 2, lineStyle: {color: colour.median, width: 1.5, type: worldDashes[w]},
    data: known.filter(s => s.world === w && s.front).map(at).sort((a, b) => a[0] - b[0]),
  }));
  series.push({
    type: 'scatter', z: 3, symbolSize: 13, labelLayout: {hideOverlap: true},
    data: known.map(s => {
      const k = policies.indexOf(s.policy), fill = policyColour(k);
      return {
        value: at(s), score: s, symbol: policySymbol(k), symbolRotate: 180,
        itemStyle: {color: s.world === last ? fill : colour.paper, borderColor: fill, borderWidth: 2},
        label: {show: s.world === last, formatter: s.policy, position: 'top', color: colour.ink, fontSize: 11},
      };
    }),
    tooltip: {formatter: p => {
      const s = p.data.score, i = s.wall_clock_us.interval;
      return `<b>${escape(s.policy)}, ${worldNames[s.world]}</b><br>${micros(s.wall_clock_us.median)}${i ? ` (${micros(i.low)} to ${micros(i.high)})` : ''}`
        + `<br>${(100 * s.lost).toFixed(1)} % of the work lost${s.front ? '<br>on the Pareto front' : ''}`;
    }},
  });
  const room = v => (v.max - v.min || v.max || 1) * .08;
  draw('trade', 340, known.length, {
    grid: {left: 74, right: narrow() ? 60 : 150, top: 14, bottom: 46},
    xAxis: axis({type: 'value', scale: true, min: v => Math.max(0, v.min - room(v)), max: v => v.max + room(v), name: 'wall-clock in scenario time', nameLocation: 'middle', nameGap: 26,
      nameTextStyle: {color: colour.soft, fontSize: 12}, axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true, showMinLabel: false, showMaxLabel: false, formatter: short}}),
    yAxis: axis({type: 'value', min: 0, max: v => Math.max(v.max * 1.1, .1), ...yName('work lost'), axisLabel: {color: colour.soft, fontSize: 11, showMaxLabel: false, formatter: v => +v.toFixed(2) + ' %'}}),
    series,
  });
  const shapes = {rect: 'bar', circle: 'dot', triangle: 'triangle', diamond: 'diamond'};
  legend('legend-trade', [
    ...policies.map((p, k) => [shapes[policySymbol(k)] || 'bar', policyColour(k), p]),
    ...worlds.map(w => [worldDashes[w] === 'solid' ? 'line' : 'dashes', colour.median, `front, ${worldNames[w]} (${w === last ? 'filled' : 'outlined'})`]),
  ]);
}

// loss draws validation loss by one of the coordinates of the points, a line for
// each run, with the target, and when policies came to it where that is known.
function loss(id, of, format) {
  const policies = data.learning.policies, target = data.learning.target;
  let points = 0;
  // What comes before the first outer step is far above the rest, mostly.
  const later = policies.flatMap(p => p.curves.flatMap(c => c.points.filter(q => q.round > 0).map(q => q.loss)));
  const least = Math.min(target, ...later), most = Math.max(target, ...later), room = (most - least || Math.abs(most) || 1) * .05;
  const series = policies.flatMap((p, k) => p.curves.map((c, n) => {
    points += c.points.length;
    return {
      type: 'line', name: p.name, symbol: c.points.length > 60 ? 'none' : policySymbol(k), symbolSize: 5, z: 3, clip: true,
      lineStyle: {color: policyColour(k), width: 2, opacity: p.curves.length > 1 ? .6 : 1}, itemStyle: {color: policyColour(k)},
      data: c.points.map(q => ({value: [of(q), q.loss], point: q, seed: c.seed})),
      ...(n === 0 && format.reached && p.time_us.n ? {markLine: {
        silent: true, symbol: 'none', animation: false, label: {show: false}, lineStyle: {color: policyColour(k), type: 'dashed', width: 1},
        data: [[{coord: [p.time_us.median, target]}, {coord: [p.time_us.median, least - room]}]],
      }} : {}),
    };
  }));
  series.push({
    type: 'line', name: 'target', silent: true, symbol: 'none', data: [], markLine: {
      silent: true, symbol: 'none', animation: false, label: {show: false}, lineStyle: {color: colour.median, type: 'dashed', width: 1}, data: [{yAxis: target}],
    },
  });
  draw(id, 320, points, {
    grid: {left: 66, right: 24, top: 14, bottom: 46},
    xAxis: axis({type: 'value', min: 0, name: format.name, nameLocation: 'middle', nameGap: 26, nameTextStyle: {color: colour.soft, fontSize: 12},
      axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true, showMaxLabel: false, formatter: format.short}}),
    yAxis: axis({type: 'value', scale: true, min: least - room, max: most + room, name: lossName, nameLocation: 'middle', nameGap: 46, nameTextStyle: {color: colour.soft, fontSize: 12},
      axisLabel: {color: colour.soft, fontSize: 11, showMinLabel: false, showMaxLabel: false, formatter: v => +v.toPrecision(3)}}),
    series,
    tooltip: {
      trigger: 'item', confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12},
      formatter: p => `<b>${escape(p.seriesName)}</b>, seed ${p.data.seed}<br>outer step ${p.data.point.round}: ${p.data.point.loss.toPrecision(4)}<br>`
        + `${short(p.data.point.wall_clock_us)}, ${p.data.point.tokens.toLocaleString('en')} tokens`,
    },
  });
}

const lossName = 'validation loss' + (data.loss_unit ? ` (${data.loss_unit})` : '');

// gradients draws a figure of the workers' contributions by round, a line for each
// worker.
function gradients(id, of, bounds, what) {
  let points = 0;
  const series = data.gradients.flatMap(g => g.workers.map(w => {
    const k = data.sides.findIndex(s => s.policy === g.policy);
    points += w.points.length;
    return {
      type: 'line', name: g.policy, symbol: w.points.length > 60 ? 'none' : policySymbol(k), symbolSize: 4, z: 3,
      lineStyle: {color: policyColour(k), width: 1.5, opacity: .7}, itemStyle: {color: policyColour(k)},
      data: w.points.map(p => ({value: [p.round, of(p)], point: p, worker: w.id})),
    };
  }));
  draw(id, 260, points, {
    grid: {left: 66, right: 24, top: 14, bottom: 46},
    xAxis: axis({type: 'value', min: 'dataMin', max: 'dataMax', minInterval: 1, name: 'round', nameLocation: 'middle', nameGap: 26, nameTextStyle: {color: colour.soft, fontSize: 12},
      axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true}}),
    yAxis: axis({type: 'value', ...bounds, ...yName(what), axisLabel: {color: colour.soft, fontSize: 11, formatter: v => +v.toFixed(2)}}),
    series,
    tooltip: {
      trigger: 'item', confine: true, backgroundColor: colour.paper, borderColor: colour.line, textStyle: {color: colour.ink, fontSize: 12},
      formatter: p => `<b>${escape(p.seriesName)}</b>, w${p.data.worker}<br>round ${p.data.point.round}: cosine ${p.data.point.cosine.toFixed(3)}, norm ${p.data.point.norm.toPrecision(3)}`,
    },
  });
}

function losses() {
  loss('loss', q => q.wall_clock_us, {name: 'scenario time', short, reached: true});
  loss('loss-tokens', q => q.tokens, {name: 'tokens that went into outer steps', short: n => n >= 1e6 ? +(n / 1e6).toFixed(2) + ' M' : n >= 1e3 ? +(n / 1e3).toFixed(1) + ' k' : n});
  const shapes = {rect: 'bar', circle: 'dot', triangle: 'triangle', diamond: 'diamond'};
  legend('legend-loss', [
    ...data.learning.policies.map((p, k) => [shapes[policySymbol(k)] || 'bar', policyColour(k), p.name]),
    ['dashes', colour.median, 'the target loss'],
  ]);
}

function render() {
  colour = dark.matches && !printing ? themes.dark : themes.light;
  timeline();
  for (const [id, picture] of [['rounds', roundLengths], ['arrivals', arrivals], ['links', links], ['trade', trade], ['loss', losses],
    ['cosines', () => gradients('cosines', p => p.cosine, {max: 1}, 'cosine')], ['norms', () => gradients('norms', p => p.norm, {min: 0}, 'L2 norm')]]) {
    if (get(id)) picture(); // a part of which there is nothing to show is not in the page
  }
  document.body.dataset.drawn = charts.size;
}

render();
