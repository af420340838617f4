// Drawings: each takes plain values and gives Plotly's data and layout, in the colours of the page.
"use strict";
const GIB = 2 ** 30;
const title = (name) => (view.names[name] ?? name).replaceAll("_", " ");

function look() {
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
  return {ink: of("--ink"), soft: of("--soft"), line: of("--line"), panel: of("--panel"), accent: of("--accent"), ghost: of("--ghost"), bad: of("--bad")};
}

function frame(look, narrow, more) {
  const axis = {tickfont: {size: narrow ? 11 : 12}, gridcolor: look.line, zerolinecolor: look.line, linecolor: look.line, automargin: true, fixedrange: true};
  const {xaxis = {}, yaxis = {}, ...others} = more;
  return {
    font: {family: 'system-ui,"Segoe UI",Roboto,sans-serif', size: 12, color: look.soft}, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", margin: {l: 8, r: narrow ? 10 : 24, t: 8, b: 40}, showlegend: false, dragmode: false, barmode: "stack", bargap: 0.35,
    hoverlabel: {bgcolor: look.panel, bordercolor: look.line, font: {color: look.ink}},
    xaxis: {...axis, ...xaxis}, yaxis: {...axis, ...yaxis}, ...others,
  };
}
const bars = (shown, part, of, [colour, pattern], look, unit) => ({
  type: "bar", orientation: "h", name: title(part), y: shown.map((one) => one.name), x: shown.map(of),
  marker: {color: colour, pattern: {shape: pattern, bgcolor: colour, fgcolor: "#fff", size: 6, solidity: 0.25}, line: {width: 0}},
  hovertemplate: `%{y}<br>${title(part)}: %{x:.4g} ${unit}<extra></extra>`,
});
const BEFORE = "before the change";
const ghostBars = (shown, of, look, unit) => ({type: "bar", orientation: "h", name: BEFORE, y: shown.map((one) => one.name), x: shown.map((one) => of(one) ?? null),
  offset: -0.46, width: 0.1, base: 0, marker: {color: look.ghost}, hovertemplate: `before: %{x:.4g} ${unit}<extra></extra>`});
const label = (axis) => ({title: {text: axis, standoff: 6}});

// Plans side by side, their parts stacked; a thin bar: before the change; a whisker: 90 %.
function timeChart(shown, view, look, narrow) {
  const data = Object.entries(view.time).filter(([part]) => shown.some((one) => one.parts[part] > 1e-4 * one.step_time_s))
    .map(([part, looks]) => bars(shown, part, (one) => one.parts[part], looks, look, "s"));
  if (shown.some((one) => one.before)) data.push(ghostBars(shown, (one) => one.before?.step_time_s, look, "s"));
  const low = Math.exp(-view.error), high = Math.exp(view.error);
  data.push({type: "scatter", mode: "markers", name: "90 %", y: shown.map((one) => one.name), x: shown.map((one) => one.step_time_s), marker: {size: 1, color: look.ink},
    error_x: {type: "data", symmetric: false, array: shown.map((one) => one.step_time_s * (high - 1)), arrayminus: shown.map((one) => one.step_time_s * (1 - low)), color: look.ink, thickness: 1.2, width: 4},
    hovertemplate: shown.map((one) => `${(one.step_time_s * low).toPrecision(3)} to ${(one.step_time_s * high).toPrecision(3)} s with 90 %<extra></extra>`)});
  return [data, frame(look, narrow, {xaxis: {...label("seconds a step"), rangemode: "tozero"}, yaxis: {autorange: "reversed"}})];
}

function memoryChart(shown, view, look, narrow, limit, capacity) {
  const data = Object.entries(view.memory).filter(([part]) => shown.some((one) => one.memory_parts[part] > 1e-4 * one.peak_memory_bytes))
    .map(([part, looks]) => bars(shown, part, (one) => one.memory_parts[part] / GIB, looks, look, "GiB"));
  if (shown.some((one) => one.before)) data.push(ghostBars(shown, (one) => one.before && one.before.peak_memory_bytes / GIB, look, "GiB"));
  const line = (x, colour, dash) => ({type: "line", x0: x / GIB, x1: x / GIB, y0: 0, y1: 1, yref: "paper", line: {color: colour, width: 1.6, dash}});
  return [data, frame(look, narrow, {xaxis: {...label("GiB on the fullest GPU"), rangemode: "tozero"},
    yaxis: {autorange: "reversed"}, shapes: [line(limit, look.ink, "solid"), line(capacity, look.soft, "dot")]})];
}

// Time against memory of all plans: the frontier joined, what doesn't fit hollow.
const MOST_POINTS = 1200;
function ordered(times, bytes) {
  return Uint32Array.from(times.keys()).sort((a, b) => times[a] - times[b] || bytes[a] - bytes[b]);
}
function edgeOf(order, bytes) {
  const edge = [];
  let least = Infinity;
  for (const row of order) if (bytes[row] < least) { least = bytes[row]; edge.push(row); }
  return edge;
}
function frontierChart(now, was, names, limit, chosen, look, narrow) {
  const {times, bytes} = now, order = ordered(times, bytes), edge = edgeOf(order, bytes), shown = times[order[0]] * 8;
  const all = Array.from(order).filter((row) => times[row] <= shown && bytes[row] <= 4 * limit), every = Math.ceil(all.length / MOST_POINTS);
  const near = all.filter((row, place) => place % every === 0);
  const ghost = was ? edgeOf(ordered(was.times, was.bytes), was.bytes).filter((row) => was.bytes[row] <= 4 * limit && was.times[row] <= shown) : [];
  const points = (rows, name, marker) => ({type: "scatter", mode: "markers", name, x: rows.map((row) => bytes[row] / GIB), y: rows.map((row) => times[row]),
    text: rows.map(names), marker, hovertemplate: "%{text}<br>%{y:.4g} s, %{x:.4g} GiB<extra></extra>"});
  const front = edge.filter((row) => bytes[row] <= 4 * limit && times[row] <= shown);
  const data = [
    points(near.filter((row) => bytes[row] <= limit), "fits", {color: look.ghost, size: 5}),
    points(near.filter((row) => bytes[row] > limit), "does not fit", {color: look.ghost, size: 5, symbol: "circle-open"}),
    ...(ghost.length ? [{type: "scatter", mode: "lines", name: `frontier ${BEFORE}`, x: ghost.map((row) => was.bytes[row] / GIB), y: ghost.map((row) => was.times[row]), line: {color: look.ghost, width: 5, shape: "hv"}, hoverinfo: "skip"}] : []),
    {...points(front, "frontier", {color: look.accent, size: 7, symbol: "diamond"}), mode: "lines+markers", line: {color: look.accent, width: 1.2, shape: "hv"}},
  ];
  if (chosen >= 0) data.push(points([chosen], "chosen", {color: "#d55e00", size: 13, symbol: "star"}));
  return [data, frame(look, narrow, {hovermode: "closest", xaxis: {...label("GiB on the fullest GPU (logarithmic)"), type: "log", dtick: narrow ? "D2" : "D1", tickformat: "~g"}, yaxis: {...label("seconds a step (logarithmic)"), type: "log", dtick: "D2", tickformat: "~g"},
    shapes: [{type: "line", x0: limit / GIB, x1: limit / GIB, y0: 0, y1: 1, yref: "paper", line: {color: look.ink, width: 1.4}}]})];
}

function scalingChart(points, was, look, narrow) {
  const ghost = (kind) => ({type: "scatter", mode: "lines", name: kind === "weak" ? BEFORE : "", x: was.map((one) => one.gpus), y: was.map((one) => one[kind]), line: {color: look.ghost, width: 5}, hoverinfo: "skip", connectgaps: false});
  const line = (name, key, dash, symbol, colour) => ({type: "scatter", mode: "lines+markers", name, x: points.map((one) => one.gpus), y: points.map((one) => one[key]),
    line: {dash, color: colour, width: 1.6}, marker: {symbol, size: 8, color: colour}, hovertemplate: `${name}<br>%{x} GPUs: %{y:.4g} tokens/s<extra></extra>`, connectgaps: false});
  return [[...(was ? [ghost("weak"), ghost("strong")] : []), line("ideal", "ideal", "dot", "line-ew", look.soft), line("the batch grows with the GPUs (weak)", "weak", "solid", "circle", "#0072b2"), line("the same batch (strong)", "strong", "dash", "square", "#d55e00")],
    frame(look, narrow, {xaxis: {...label("GPUs (logarithmic)"), type: "log", tickvals: points.map((one) => one.gpus), ticktext: points.map((one) => String(one.gpus))}, yaxis: {...label("tokens a second (logarithmic)"), type: "log", tickformat: "~s", dtick: "D2"}})];
}

function sensitivityChart(slopes, was, look, narrow) {
  const then = new Map(was?.map((one) => [one.label, one])), ends = slopes.map((one) => then.get(one.label));
  const ghost = {type: "bar", orientation: "h", name: BEFORE, y: slopes.map((one) => one.label), base: ends.map((one) => one ? Math.min(one.less, one.more) : 0), x: ends.map((one) => one ? Math.abs(one.more - one.less) : null),
    offset: -0.46, width: 0.1, marker: {color: look.ghost}, hoverinfo: "skip"};
  const side = (name, key, colour, pattern) => ({type: "bar", orientation: "h", name, y: slopes.map((one) => one.label), x: slopes.map((one) => one[key]), base: 0,
    marker: {color: colour, pattern: {shape: pattern, bgcolor: colour, fgcolor: "#fff", size: 6, solidity: 0.25}}, hovertemplate: `%{y} ${name}: %{x:+.2f} %<extra></extra>`});
  return [[side("a fifth less", "less", "#d55e00", "/"), side("a fifth more", "more", "#0072b2", ""), ...(was ? [ghost] : [])],
    frame(look, narrow, {barmode: "overlay", xaxis: {...label("step time [%]"), zeroline: true, zerolinecolor: look.ink}, yaxis: {autorange: "reversed"}})];
}

// What each rank does over a step: all of it, or where that is too much its beginning and its end, as long as are returned beside.
const DRAWN_PASSES = 400, HOLDERS = 4;
const HELD = [["#0072b2", "solid"], ["#d55e00", "dash"], ["#009e73", "dot"], ["#cc79a7", "dashdot"]];
function timelineChart(got, was, view, look, narrow) {
  const {kind, rank, micro, stage, duration, end, kinds, ranks, total} = got, most = narrow ? DRAWN_PASSES / 2 : DRAWN_PASSES;
  const drawn = kinds.map((name) => name in view.passes), passes = [], begun = (e) => end[e] - duration[e];
  for (let e = 0; e < kind.length; e++) if (drawn[kind[e]] && duration[e] > 0) passes.push(e);
  const unit = total >= 1 ? 1 : 1e-3, of = total >= 1 ? "s" : "ms", halves = [passes];
  let shown = null;
  if (passes.length > most) {
    const starts = Float64Array.from(passes, begun).sort(), ends = Float64Array.from(passes, (e) => end[e]).sort();
    shown = [starts[most / 2], total - ends[ends.length - most / 2]];
    halves.splice(0, 1, passes.filter((e) => begun(e) < shown[0]), passes.filter((e) => end[e] > total - shown[1]));
  }
  const titled = new Set();
  const data = halves.flatMap((half, place) => Object.entries(view.passes).map(([name, [colour, pattern]]) => {
    const own = half.filter((e) => kinds[kind[e]] === name), shape = (corners) => own.flatMap((e) => [...corners(e), null]);  // one path of many boxes
    const words = titled.has(name) || !own.length ? "" : name === "sync" ? "gradients, optimizer, host" : name.replace("-", " by ");
    titled.add(words && name);
    const said = (e) => `rank ${rank[e]}: ${name === "sync" ? "gradients, optimizer, host" : `${name} of micro-batch ${micro[e]} on stage ${stage[e]}`}<br>from ${(begun(e) / unit).toPrecision(5)} ${of}, for ${(duration[e] / unit).toPrecision(3)} ${of}`;
    return {type: "scatter", mode: "lines", line: {color: look.panel, width: 0.6}, name: words, xaxis: place ? "x2" : "x", fill: "toself", fillcolor: colour, fillpattern: {shape: pattern, bgcolor: colour, fgcolor: "#fff", size: 6, solidity: 0.25},
      x: shape((e) => [begun(e) / unit, begun(e) / unit, end[e] / unit, end[e] / unit]), y: shape((e) => [rank[e] + 0.43, rank[e] - 0.43, rank[e] - 0.43, rank[e] + 0.43]),
      text: shape((e) => Array(4).fill(said(e))), hoveron: "points", hoverinfo: "text"};
  })).filter(({x}) => x.length);
  const spans = shown ? [[0, shown[0]], [total - shown[1], total]] : [[0, total]];
  if (was) spans.forEach(([from, to], place) => {
    const x = [], y = [];
    for (let e = 0; e < was.kind.length; e++) {
      const first = Math.max(was.end[e] - was.duration[e], from), last = Math.min(was.end[e], to);
      if (first >= last || !(was.kinds[was.kind[e]] in view.passes)) continue;
      x.push(first / unit, first / unit, last / unit, last / unit, null);
      y.push(was.rank[e] - 0.47, was.rank[e] - 0.37, was.rank[e] - 0.37, was.rank[e] - 0.47, null);
    }
    data.unshift({type: "scatter", mode: "lines", name: place ? "" : BEFORE, xaxis: place ? "x2" : "x", fill: "toself", fillcolor: look.ghost, line: {width: 0, color: look.ghost}, x, y, hoverinfo: "skip"});
  });
  const holders = [...new Set(Array.from({length: Math.min(ranks, HOLDERS)}, (_, place) => Math.round(place * (ranks - 1) / Math.max(1, Math.min(ranks, HOLDERS) - 1))))];
  holders.forEach((holder, order) => {
    const [when, count] = got.held(holder);
    spans.forEach(([from, to], place) => {
      const x = [], y = [];
      when.forEach((at, step) => {
        if (at > to || (when[step + 1] ?? Infinity) < from) return;
        x.push(Math.max(at, from) / unit); y.push(count[step]);
      });
      if (x.length) { x.push(to / unit); y.push(y.at(-1)); }
      const [color, dash] = HELD[order];
      data.push({type: "scatter", mode: "lines", name: place ? "" : `held by rank ${holder}`, xaxis: place ? "x4" : "x3", yaxis: "y2", x, y, line: {shape: "hv", width: 1.6, color, dash}, hovertemplate: `rank ${holder} holds %{y:.3g} micro-batches from %{x:.4g} ${of}<extra></extra>`});
    });
  });
  const time = {zeroline: false, showgrid: false, nticks: narrow ? 3 : 8}, plain = frame(look, narrow, {});
  const domains = shown ? [[0, narrow ? 0.46 : 0.49], [narrow ? 0.54 : 0.51, 1]] : [[0, 1]], axes = {};
  spans.forEach(([from, to], place) => {
    const common = {...plain.xaxis, ...time, domain: domains[place], range: [from / unit, to / unit]};
    axes[place ? "xaxis2" : "xaxis"] = {...common, anchor: "y", showticklabels: false};
    axes[place ? "xaxis4" : "xaxis3"] = {...common, anchor: "y2", ...label(shown ? `${place ? "end" : "beginning"} [${of}]` : `time [${of}]`)};
  });
  return [[data, frame(look, narrow, {hovermode: "closest", ...axes, yaxis: {...label("rank"), domain: [0.36, 1], range: [ranks - 0.4, -0.6], tickmode: "linear", dtick: Math.max(1, Math.ceil(ranks / 8)), showgrid: false, zeroline: false},
    yaxis2: {...plain.yaxis, ...label("held"), domain: [0, 0.28], rangemode: "tozero", nticks: 3, anchor: "x3"}})], shown];
}

// Why one plan is slower than another, part by part.
function differenceChart(one, other, view, look, narrow) {
  const parts = Object.keys(view.time).map((part) => [part, other.parts[part] - one.parts[part]])
    .filter(([, change]) => Math.abs(change) > 0.002 * one.step_time_s).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1]));
  const rest = other.step_time_s - one.step_time_s - parts.reduce((sum, [, change]) => sum + change, 0);
  const steps = Math.abs(rest) > 1e-6 * one.step_time_s ? [...parts, ["all else", rest]] : parts;
  let at = one.step_time_s;
  const heights = [at, other.step_time_s, ...steps.map(([, change]) => (at += change))], low = Math.min(...heights), high = Math.max(...heights);
  const reach = [Math.max(0, low - 1.5 * (high - low)), high + (narrow ? 0.6 : 0.25) * (high - low) + 1e-9 * high];  // the changes, not the whole
  const names = [one.name, ...steps.map(([part]) => title(part)), other.name], values = [one.step_time_s, ...steps.map(([, change]) => change), other.step_time_s];
  const words = values.map((value, place) => place === 0 || place === values.length - 1 ? value.toPrecision(4) : (value > 0 ? "+" : "−") + Math.abs(value).toPrecision(2));
  const along = narrow ? {orientation: "h", y: names, x: values} : {orientation: "v", x: names, y: values};
  const amounts = {...label("seconds a step"), range: reach}, plans = narrow ? {autorange: "reversed"} : {};
  return [[{type: "waterfall", ...along, measure: ["absolute", ...steps.map(() => "relative"), "total"], text: words, textposition: "outside", cliponaxis: false,
    connector: {line: {color: look.line}}, increasing: {marker: {color: "#d55e00"}}, decreasing: {marker: {color: "#009e73"}}, totals: {marker: {color: "#0072b2"}},
    hovertemplate: "%{label}: %{text} s<extra></extra>"}],
    frame(look, narrow, {margin: {l: 8, r: 12, t: 24, b: 36}, ...(narrow ? {xaxis: amounts, yaxis: plans} : {yaxis: amounts, xaxis: plans})})];
}

// What a colour or a sign means, beside the drawing; patterns as in the bars.
const HATCHES = {"/": "repeating-linear-gradient(135deg,#fff8 0 1.5px,#0000 1.5px 5px)", "\\": "repeating-linear-gradient(45deg,#fff8 0 1.5px,#0000 1.5px 5px)",
  x: "repeating-linear-gradient(45deg,#fff8 0 1.5px,#0000 1.5px 6px),repeating-linear-gradient(135deg,#fff8 0 1.5px,#0000 1.5px 6px)",
  "+": "repeating-linear-gradient(0deg,#fff8 0 1.5px,#0000 1.5px 6px),repeating-linear-gradient(90deg,#fff8 0 1.5px,#0000 1.5px 6px)",
  ".": "radial-gradient(#fffc 1.2px,#0000 1.4px) 0 0/5px 5px", "-": "repeating-linear-gradient(0deg,#fff8 0 1.5px,#0000 1.5px 5px)", "|": "repeating-linear-gradient(90deg,#fff8 0 1.5px,#0000 1.5px 5px)"};
const paint = (colour, pattern) => pattern in HATCHES ? `${HATCHES[pattern]}, ${colour}`.replace(/ 0 0\/5px 5px, (.*)$/, " 0 0/5px 5px, $1") : colour;
function legend(data) {
  return data.filter((one) => one.visible !== false && one.type !== "waterfall" && one.name).map((one) => {
    const {color, pattern, symbol, size} = one.fill ? {color: one.fillcolor, pattern: one.fillpattern} : one.marker ?? {};
    const key = one.type === "bar" || one.fill ? "patch" : size === 1 ? "whisker" : one.line?.dash && one.line.dash !== "solid" ? one.line.dash : symbol?.includes("open") ? "open" : (one.mode ?? "").includes("lines") ? "line" : "point";
    return {name: one.name, key, colour: size === 1 ? one.error_x.color : color ?? one.line?.color, pattern: pattern?.shape ?? ""};
  });
}
