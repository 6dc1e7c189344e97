// What the pages' scripts share. Each page is complete without them: every
// number is in its tables. A page's own script follows in the same function
// and declares render, which draws all pictures.
const data = JSON.parse(document.getElementById('data').textContent);
const dark = matchMedia('(prefers-color-scheme: dark)');
const get = id => document.getElementById(id);
const thousands = n => String(Math.round(n)).replace(/\B(?=(\d{3})+(?!\d))/g, ',');
const micros = n => thousands(n) + ' µs';
const short = n => n >= 1e6 ? +(n / 1e6).toFixed(2) + ' s' : n >= 1e3 ? +(n / 1e3).toFixed(2) + ' ms' : Math.round(n) + ' µs';
const escape = text => echarts.format.encodeHTML(String(text));

// Colours that stay apart for eyes that see no red or green; what they mean
// is told by height, place and words too.
const themes = {
  light: {
    ink: '#1b1f24', soft: '#57606a', line: '#d0d7de', paper: '#ffffff',
    'inner step': '#0b6bb3', 'inner step, dropped': '#8fc1e8', waiting: '#8c959f',
    'reduce-scatter': '#d98200', 'all-gather': '#a84a00', 'all-reduce': '#a8438a', 'state fetch': '#00795a',
    'slowed down': '#e9d8fd', 'cut off': '#ffd3cf', paused: '#d6e4f0', 'link changed': '#cdeee8', sidelined: '#ffe7a3', dead: '#c9ced4', evicted: '#dde1e6',
    fault: '#c4161c', decision: '#1b1f24', deadline: '#c4161c', median: '#57606a',
  },
  dark: {
    ink: '#e6edf3', soft: '#a3adb8', line: '#3d444d', paper: '#0f1419',
    'inner step': '#58a6e8', 'inner step, dropped': '#2f5f8a', waiting: '#7d8590',
    'reduce-scatter': '#f0a63a', 'all-gather': '#e0712c', 'all-reduce': '#d483b8', 'state fetch': '#3fbf95',
    'slowed down': '#3f2d5c', 'cut off': '#5c2426', paused: '#24405c', 'link changed': '#12433d', sidelined: '#594611', dead: '#353b43', evicted: '#272d35',
    fault: '#ff7b72', decision: '#e6edf3', deadline: '#ff7b72', median: '#a3adb8',
  },
};

// Colours and symbols of policies, in the order in which they are shown.
const policyColours = ['reduce-scatter', 'inner step', 'state fetch', 'all-reduce', 'all-gather', 'waiting', 'fault', 'inner step, dropped'];
const policySymbols = ['rect', 'circle', 'triangle', 'diamond', 'roundRect', 'pin', 'arrow'];
const policyColour = k => colour[policyColours[k % policyColours.length]];
const policySymbol = k => policySymbols[k % policySymbols.length];

// The width of a picture on A4 and Letter, in px of 1/96 inch; the layout of
// paper is not known yet when a page is asked to get ready for it.
const paper = 680;
let printing = false;
let colour = themes.light;
const narrow = () => printing || document.documentElement.clientWidth < 600;

// legend writes what the colours mean as a list of the page's own.
function legend(id, items) {
  get(id).innerHTML = items.map(([shape, fill, text]) => {
    const body = {
      bar: `<rect y="2" width="18" height="11" rx="1" fill="${fill}"/>`,
      thin: `<rect y="6" width="18" height="3" fill="${fill}"/>`,
      ground: `<rect x=".5" y=".5" width="17" height="14" fill="${fill}" stroke="${colour.line}"/>`,
      dot: `<circle cx="9" cy="7.5" r="4.5" fill="${fill}"/>`,
      ring: `<circle cx="9" cy="7.5" r="4" fill="none" stroke="${fill}" stroke-width="2"/>`,
      cross: `<path d="M5 3l8 9M13 3l-8 9" stroke="${fill}" stroke-width="2"/>`,
      line: `<rect y="6.5" width="18" height="2.5" fill="${fill}"/>`,
      dashes: `<path d="M0 7.5h18" stroke="${fill}" stroke-width="2.5" stroke-dasharray="5 3"/>`,
      diamond: `<path d="M9 1l6 6.5L9 14 3 7.5z" fill="${fill}"/>`,
      triangle: `<path d="M3 2h12L9 13z" fill="${fill}"/>`,
      tick: `<rect x="8" width="2.5" height="15" fill="${fill}"/>`,
    }[shape];
    return `<li><svg viewBox="0 0 18 15" aria-hidden="true">${body}</svg>${escape(text)}</li>`;
  }).join('');
}

const charts = new Map();

function draw(id, height, count, option) {
  const box = get(id);
  box.style.height = height + 'px';
  box.style.width = printing ? paper + 'px' : '';
  // SVG prints sharply; beyond some thousand shapes a canvas is faster.
  const renderer = count > 4000 ? 'canvas' : 'svg';
  let chart = charts.get(id);
  if (!chart) {
    chart = echarts.init(box, null, {renderer});
    charts.set(id, chart);
  }
  chart.resize();
  chart.setOption({
    animation: false, backgroundColor: 'transparent',
    textStyle: {color: colour.ink, fontFamily: 'inherit', fontSize: 12},
    tooltip: {
      confine: true, backgroundColor: colour.paper, borderColor: colour.line, extraCssText: 'max-width:22rem;white-space:normal',
      textStyle: {color: colour.ink, fontSize: 12},
    },
    ...option,
  }, {notMerge: true});
}

const title = (text, top) => ({text, top: top + 4, left: 0, padding: 0, textStyle: {fontSize: 13, fontWeight: 600, color: colour.ink}});
const axis = extra => ({
  axisLine: {lineStyle: {color: colour.line}}, axisTick: {lineStyle: {color: colour.line}},
  axisLabel: {color: colour.soft, fontSize: 11, hideOverlap: true}, splitLine: {lineStyle: {color: colour.line, opacity: .5}}, ...extra,
});

const yName = name => ({name, nameLocation: 'middle', nameGap: 46, nameTextStyle: {color: colour.soft, fontSize: 11}});

let again;
addEventListener('resize', () => { clearTimeout(again); again = setTimeout(render, 120); });
dark.addEventListener('change', render);
const closed = new Set();
addEventListener('beforeprint', () => {
  printing = true;
  document.querySelectorAll('details:not([open])').forEach(d => { closed.add(d); d.open = true; });
  render();
});
addEventListener('afterprint', () => {
  printing = false;
  closed.forEach(d => { d.open = false; });
  closed.clear();
  render();
});
