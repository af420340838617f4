// Drawings: each takes plain values and gives Plotly's data and layout, in the colours of the page.
"use strict";
const GIB = 2 ** 30;
const title = (name) => (view.names[name] ?? name).replaceAll("_", " ");

// words and numbers
const figures = (x, count) => String(Number(x.toPrecision(count)));
function seconds(s) {
  for (const [unit, size] of [["d", 86400], ["h", 3600]]) if (s >= 2 * size) return `${figures(s / size, 3)} ${unit}`;
  for (const [unit, size] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]]) if (s >= size) return `${figures(s / size, unit === "s" ? 4 : 3)} ${unit}`;
  return `${figures(s * 1e9, 3)} ns`;
}
function between(low, high = null) {
  const [size, unit] = secondsUnit(high ?? low), text = (s) => s / size >= 100 ? Math.round(s / size).toLocaleString("en") : figures(s / size, 3);
  return `${text(low)}${high === null ? "" : ` to ${text(high)}`} ${unit}`;
}
const percentage = (share) => `${share < 0 ? "−" : "+"}${Math.abs(100 * share).toFixed(1)} %`;
const gib = (n) => (n / GIB).toFixed(1);
// whole percent, a half to the even one, as Python writes it
const wholePercent = (share) => { const up = Math.round(100 * share); return String(up - 100 * share === 0.5 && up % 2 ? up - 1 : up); };
const percent = (share) => `${(100 * share).toFixed(share < 0.0995 ? 1 : 0)} %`;
const signed = (share) => `${share >= 0 ? "+" : "−"}${(100 * Math.abs(share)).toFixed(Math.abs(share) < 0.0995 ? 1 : 0)} %`;
const amount = (x) => x === 0 ? "0" : Math.abs(x) >= 99.95 ? Math.round(x).toLocaleString("en") : String(Number(x.toPrecision(3)));
const factor = (f) => Math.abs(f - 1) < 0.005 ? "" : Math.abs(f - 0.5) < 0.005 ? "½×" : Math.abs(f - 0.25) < 0.003 ? "¼×" : `${Number(f.toPrecision(f < 1 ? 2 : 3))}×`;
// A plan in the words of `costmodel.description.labels.label`.
const asList = (value) => JSON.stringify(value ?? null);
function degrees(plan) {
  return view.words.degrees.filter(([name]) => plan[name] > 1).map(([name, short]) => `${short}${plan[name]}`).join(" ") || "one GPU";
}
function planLabel(plan) {
  const words = (value) => Array.isArray(value) ? value.map((one) => view.words.ranks[one]).join("-") : String(value);
  const more = view.words.said.filter(([name, commonest]) => name in plan && (plan.expert_parallel > 1 || !view.words.experts.includes(name)) && !commonest.some((one) => asList(one) === asList(plan[name])));
  return [degrees(plan), ...more.map(([name, , text]) => text.replace("{}", words(plan[name])))].join(", ");
}

function look() {
  const style = getComputedStyle(document.documentElement), of = (name) => style.getPropertyValue(name).trim();
  return {ink: of("--ink"), soft: of("--soft"), line: of("--line"), panel: of("--panel"), accent: of("--accent"), ghost: of("--ghost"), bad: of("--bad")};
}

function frame(look, narrow, more) {
  const axis = {tickfont: {size: narrow ? 11 : 12}, gridcolor: look.line, zerolinecolor: look.line, linecolor: look.line, automargin: true, ticklabeloverflow: "allow", fixedrange: true};
  const {xaxis = {}, yaxis = {}, ...others} = more;
  return {
    font: {family: 'system-ui,"Segoe UI",Roboto,sans-serif', size: 12, color: look.soft}, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", margin: {l: 8, r: narrow ? 10 : 24, t: 8, b: 40}, showlegend: false, dragmode: false, barmode: "stack", bargap: 0.35,
    hoverlabel: {bgcolor: look.panel, bordercolor: look.line, font: {color: look.ink}},
    xaxis: {...axis, ...xaxis}, yaxis: {...axis, ...yaxis}, ...others,
  };
}
const BEFORE = "before the change";
const label = (axis) => ({title: {text: axis, standoff: 6}});

// Charts as data, as `costmodel.plots.specification` describes them: their numbers and words are filled in here.
const NAMED = /(?<!%)\{([a-z_.]+)\}/g;
const valueOf = (shown, path) => path.split(".").reduce((value, name) => value[name], shown);
const isThere = (value) => Array.isArray(value) ? value.length > 0 : Boolean(value);
const isEntry = (part, kind) => part !== null && typeof part === "object" && Object.keys(part).sort().join() === kind;
function filled(specification, shown) {
  if (typeof specification === "string") return specification.replace(NAMED, (_, path) => String(valueOf(shown, path)));
  if (Array.isArray(specification)) return specification.flatMap((part) => entriesOf(part, shown));
  if (specification === null || typeof specification !== "object") return specification;
  if (isEntry(specification, "of")) return valueOf(shown, specification.of);
  return Object.fromEntries(Object.entries(specification).map(([name, part]) => [name, entriesOf(part, shown)]).filter(([, entries]) => entries.length).map(([name, entries]) => [name, entries[0]]));
}
function entriesOf(part, shown) {
  if (isEntry(part, "each,give")) return valueOf(shown, part.each).map((it) => filled(part.give, {...shown, it}));
  if (isEntry(part, "give,when")) return isThere(valueOf(shown, part.when)) ? [filled(part.give, shown)] : [];
  return [filled(part, shown)];
}
// Room for lines of text: margins that are known need not be found by drawing all twice.
let pen = null;
function widest(names, size) {
  pen ??= document.createElement("canvas").getContext("2d");
  pen.font = `bold ${size}px system-ui, "Segoe UI", Roboto, sans-serif`;
  return Math.ceil(Math.max(0, ...names.flatMap((name) => String(name).split("<br>")).map((line) => pen.measureText(line.replace(/<\/?b>/g, "")).width)));
}
// Filled charts in the colours and the room of the page; their titles are texts of the page.
// What is drawn in black, in the page's ink; long arrays hold no colours.
function inInk(part, ink) {
  if (part === "#000000") return ink;
  if (part === null || typeof part !== "object" || (Array.isArray(part) && typeof part[0] !== "object")) return part;
  return Array.isArray(part) ? part.map((one) => inInk(one, ink)) : Object.fromEntries(Object.entries(part).map(([name, one]) => [name, inInk(one, ink)]));
}
function fitted(specification, shown, look, narrow) {
  const {data, layout} = inInk(filled(specification, shown), look.ink);
  const {title, height, template, legend, margin, ...rest} = layout, plain = frame(look, narrow, {}), axes = {};
  for (const [name, axis] of Object.entries(rest)) if (/^[xy]axis/.test(name)) axes[name] = {...plain[`${name[0]}axis`], ...axis};
  axes.yaxis.ticktext = firstLines(axes.yaxis.ticktext);
  const names = axes.yaxis.ticktext ?? (data[0]?.type === "waterfall" ? data[0].y : null);
  for (const [name, axis] of Object.entries(axes)) axis.automargin = name[0] === "x" || data[0]?.type === "waterfall";
  const made = {...plain, ...rest, margin: {t: 10, r: narrow ? 10 : 24, b: 48, l: names ? widest(names, narrow ? 11 : 12) + 12 : 64}, ...axes};
  return [data, withNames(made), title.text.replace("<br><sub>", ". ").replace("</sub>", "").replaceAll("<br>", " ")];
}
// Rows of a chart for whose names two lines have room; of more, the second line is left to their hovers.
const MOST_TWO_LINES = 5;
const firstLines = (names) => names?.length > MOST_TWO_LINES ? names.map((name) => name.split("<br>")[0]) : names;
const folded = (name, width = 20) => name.split(", ").reduce((lines, word) => {
  const last = lines.at(-1);
  if (last && last.length + word.length > width) lines.push(word); else lines[lines.length - 1] = last ? `${last}, ${word}` : word;
  return lines;
}, [""]).join("<br>");
const secondsUnit = (largest) => largest >= 1 ? [1, "s"] : largest >= 1e-3 ? [1e-3, "ms"] : [1e-6, "us"];
const bytesUnit = (largest) => [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]].find(([size]) => largest >= size) ?? [1, "bytes"];

// What `costmodel.plots.step.Breakdown` holds, of the page's own numbers.
function breakdown(shown, view) {
  const was = shown.every((one) => one.before) ? shown.map((one) => one.before.step_time_s) : [], totals = shown.map((one) => one.step_time_s);
  const [size, unit] = secondsUnit(Math.max(...totals, ...was));
  const bars = Object.entries(view.time).filter(([part]) => shown.some((one) => one.parts[part])).map(([part, [colour, pattern]]) => ({
    name: title(part), colour, pattern, times: shown.map((one) => one.parts[part] / size), shares: shown.map((one) => 100 * one.parts[part] / one.step_time_s)}));
  return {
    title: view.titles.time, unit, whole: "step", axis: `step time [${unit}], whiskers: 90 %`, lines: [], ticks: shown.map((one) => `${folded(one.name)}<br><b>${seconds(one.step_time_s)}</b>`), bars, totals: totals.map((time) => time / size), before: was.map((time) => time / size),
    places: [...shown.keys()], above: shown.map((one) => one.step_time_s * (Math.exp(view.shift + one.error) - 1) / size), below: shown.map((one) => one.step_time_s * (1 - Math.exp(view.shift - one.error)) / size), rows: [shown.length - 0.45, -0.6], height: 0,
  };
}
function timeChart(shown, view, look, narrow) { return fitted(view.charts.time, breakdown(shown, view), look, narrow); }

// What `costmodel.plots.step.Fall` holds: why one plan is slower than another.
function fall(one, other, view) {
  const [size, unit] = secondsUnit(Math.max(one.step_time_s, other.step_time_s)), every = Object.keys(view.time).map((part) => [part, one.parts[part], other.parts[part]]);
  const change = ([, first, second]) => second - first, least = view.rules.small * Math.max(...every.map((row) => Math.abs(change(row))));
  const found = every.filter((row) => Math.abs(change(row)) > least).sort((a, b) => Math.abs(change(b)) - Math.abs(change(a))), small = every.filter((row) => Math.abs(change(row)) <= least);
  const sum = (place) => small.reduce((all, row) => all + row[place], 0), rest = ["other", sum(1), sum(2)];
  if (least > 0 && Math.abs(change(rest)) > view.rules.nothing * Math.max(one.step_time_s, other.step_time_s)) found.push(rest);
  const changes = [...found.map(change), other.step_time_s - one.step_time_s].map((time) => time / size), levels = [0];
  for (const added of changes.slice(0, -1)) levels.push(levels.at(-1) + added);
  const lowest = Math.min(...levels), most = Math.max(...levels), room = 0.45 * (most - lowest || 1);
  return {
    unit, first: `${one.name} ${seconds(one.step_time_s)}`, second: `${other.name} ${seconds(other.step_time_s)}`, change: `${percentage(other.step_time_s / one.step_time_s - 1)}`,
    rows: [...found.map(([part]) => title(part)), "in all"], changes, words: changes.map((added) => `${added < 0 ? "−" : "+"}${amount(Math.abs(added))} ${unit}`),
    both: [...found.map(([, first, second]) => [first / size, second / size]), [one.step_time_s / size, other.step_time_s / size]],
    measures: [...found.map(() => "relative"), "total"], span: [lowest - room, most + room], height: 0,
  };
}
// On a phone: between a chart and the edges of the window [pixels], letters that have room in a line of a name, and lines of it.
const PHONE = 520, AROUND = 56, LETTERS = 20, LINES = 4;
const broken = (line) => line.length <= LETTERS || line.startsWith("<b>") ? [line] : line.split(/(?<=[ +-])/).reduce((lines, word) => {
  if (lines.length && lines.at(-1).length + word.length > LETTERS) lines.push(word); else lines.push((lines.pop() ?? "") + word);
  return lines;
}, []);
// Names of which what all say is left out, but for their first and their last line.
function shortened(names) {
  const lines = names.map((name) => name.split("<br>")), alike = lines.length > 1 ? lines[0].filter((line) => lines.every((others) => others.includes(line))) : [];
  return lines.map((all) => {
    const own = all.filter((line, place) => place === 0 || place === all.length - 1 || !alike.includes(line)).flatMap(broken);
    return (own.length > LINES ? [...own.slice(0, LINES - 2), "…", own.at(-1)] : own).join("<br>");
  });
}
function withNames(layout) {
  if (innerWidth >= PHONE || !layout.yaxis.ticktext) return layout;
  const ticktext = shortened(layout.yaxis.ticktext), l = widest(ticktext, 11) + 12, {text = ""} = layout.xaxis.title ?? {};
  const two = widest([text], 14) > innerWidth - l - layout.margin.r - AROUND && text.includes(", ");
  return {...layout, margin: {...layout.margin, l, b: two ? 64 : layout.margin.b}, yaxis: {...layout.yaxis, ticktext, tickfont: {...layout.yaxis.tickfont, size: 11}},
    xaxis: two ? {...layout.xaxis, title: {...layout.xaxis.title, text: text.replace(", ", "<br>")}} : layout.xaxis};
}
// Where there is no room for words behind bars, they stand beside what they are of, on a phone below it.
const ROOM = 0.25, LESS = 0.05;
// Passes that are as narrow as the lines around them on a phone have none there, which would be all that is seen.
const unlined = (trace) => trace.type === "bar" && trace.base ? {...trace, marker: {...trace.marker, line: {width: 0}}} : trace;
function slim(figure, halved = false) {
  const phone = innerWidth < PHONE;
  if (phone && figure?.data?.some(({base}) => base)) return {...figure, data: figure.data.map(unlined)};
  if (figure?.layout?.yaxis?.ticktext) return {...figure, layout: withNames(figure.layout)};
  if (!(phone || halved) || figure?.data?.[0]?.type !== "waterfall") return figure;
  const {data: [trace], layout} = figure, [low, high] = layout.xaxis.range, cut = (ROOM - LESS) * (high - low) / (1 + 2 * ROOM);
  const y = trace.y.map((row, place) => `${row}${phone ? "<br>" : " "}${trace.text[place]}`);
  return {...figure, data: [{...trace, y, textposition: "none"}], layout: {...layout, margin: {...layout.margin, r: 14}, xaxis: {...layout.xaxis, range: [low + cut, high - cut]}, yaxis: {...layout.yaxis, tickfont: {size: phone ? 10 : 12}}}};
}
function differenceChart(one, other, view, look, narrow) {
  const [data, layout, heading] = fitted(view.charts.difference, fall(one, other, view), look, narrow), made = slim({data, layout});
  return [made.data, made.layout, heading];
}

// The same of what the fullest GPU holds, with lines up to which a plan is judged to fit and at what there is.
function parts(shown, view, limit, capacity) {
  const of = (one) => one.peak_memory_bytes / GIB, was = shown.every((one) => one.before) ? shown.map((one) => of(one.before)) : [];
  const bars = Object.entries(view.memory).filter(([part]) => shown.some((one) => one.memory_parts[part] > 1e-4 * one.peak_memory_bytes)).map(([part, [colour, pattern]]) => ({
    name: title(part), colour, pattern, times: shown.map((one) => one.memory_parts[part] / GIB), shares: shown.map((one) => 100 * one.memory_parts[part] / one.peak_memory_bytes)}));
  return {
    title: "", unit: "GiB", whole: "memory", axis: "memory [GiB]", lines: [{at: limit / GIB, dash: "solid"}, {at: capacity / GIB, dash: "dot"}],
    ticks: shown.map((one) => `${folded(one.name)}<br><b>${gib(one.peak_memory_bytes)} GiB</b>`), bars, totals: [], above: [], below: [], before: was,
    places: [...shown.keys()], rows: [shown.length - 0.45, -0.6], height: 0,
  };
}
function memoryChart(shown, view, look, narrow, limit, capacity) { return fitted(view.charts.time, parts(shown, view, limit, capacity), look, narrow); }

// What `costmodel.plots.stages.Stages` holds, with another limit up to which a plan is judged to fit.
const staged = (made, limit) => ({...made, limit, fits: `fits up to ${amount(limit)} ${made.unit}`, span: [0, 1.12 * Math.max(...made.highs, limit, ...made.before)]});

// What `costmodel.plots.frontier.Frontier` holds: time against memory of all plans.
function ordered(times, bytes) {
  return Uint32Array.from(times.keys()).sort((a, b) => times[a] - times[b] || bytes[a] - bytes[b]);
}
function edgeOf(order, bytes) {
  const edge = [];
  let least = Infinity;
  for (const row of order) if (bytes[row] < least) { least = bytes[row]; edge.push(row); }
  return edge;
}
// Of some of them alone, `rows` says which those are.
function frontier({times, bytes, limit, rows: all = null}, was, names, view) {
  const order = ordered(times, bytes), edge = edgeOf(order, bytes), on = new Set(edge), fits = (row) => bytes[row] <= limit;
  const fastest = times[order.find(fits) ?? order[0]], {farthest, most} = view.rules;
  const near = (row, found = {times, bytes}) => found.times[row] <= farthest * fastest && found.bytes[row] <= farthest * limit;
  const [size, time_unit] = secondsUnit(fastest), [held, memory_unit] = bytesUnit(limit);
  const points = (rows, found = {times, bytes, rows: all}) => ({times: rows.map((row) => found.times[row] / size), memory: rows.map((row) => found.bytes[row] / held), texts: rows.map((row) => names(found.rows ? found.rows[row] : row))});
  const rest = Array.from(order).filter((row) => near(row) && !on.has(row)), thinned = (rows) => rows.filter((_, place) => place % Math.ceil(2 * rows.length / most) === 0);
  const fitting = thinned(rest.filter(fits)), missing = thinned(rest.filter((row) => !fits(row))), close = edge.filter((row) => near(row)), best = close.length ? close : edge;
  const then = was ? edgeOf(ordered(was.times, was.bytes), was.bytes).filter((row) => near(row, was)) : [];
  const left = view.legal - fitting.length - missing.length - best.length;
  return {
    words: view.titles.frontier + (left > 0 ? `<br><sub>${left.toLocaleString("en")} more are slower, larger or too many to be drawn</sub>` : ""), time_unit, memory_unit, fitting: points(fitting), missing: points(missing),
    rows: [...fitting, ...missing, ...best], before: points(then, was ?? undefined), best: points(best), symbols: best.map((row) => fits(row) ? "diamond" : "diamond-open"), fastest: points(best.filter(fits).slice(0, 1)), limit: limit / held, fits: `fits up to ${amount(limit / held)} ${memory_unit}`,
  };
}
function frontierChart(found, was, names, view, look, narrow) {
  const made = frontier(found, was, names, view);
  return [...fitted(view.charts.frontier, made, {...look, hovermode: "closest"}, narrow), made.rows];
}

// What `costmodel.plots.dimension_sweeps.ScalingChart` holds: of a list of each kind, plans with their GPUs, global batch, step and its interval.
const counted = (n) => n.toLocaleString("en"), rounded = (n) => counted(Math.round(n));
function scaled([strong, weak], before, tokens, heading, view) {
  const line = (points, place) => {
    const [name, colour, symbol, dash] = view.series.scaling[place], rate = ({gpus, batch}, time) => batch * tokens / time / gpus;
    const there = points.filter((one) => one.step_time_s), [first] = there, rates = there.map((one) => rate(one, one.step_time_s)), ends = (end) => there.map((one) => one[end] ? rate(one, one[end]) : rate(one, one.step_time_s));
    const ideal = first ? rates[0] : 0;
    return {
      name, kind: name.split(":")[0], colour, symbol, dash, gpus: there.map((one) => one.gpus), rates, ideal: there.map(() => ideal),
      above: ends("low").map((high, at) => high - rates[at]), below: ends("high").map((low, at) => rates[at] - low), missing: points.filter((one) => !one.step_time_s).map((one) => one.gpus),
      texts: there.map((one, at) => `${counted(one.gpus)} GPUs, global batch ${counted(one.batch)}: ${one.name}<br>${seconds(one.step_time_s)} a step, ${rounded(rates[at] * one.gpus)} tokens/s, ${rounded(rates[at])} a GPU, ${wholePercent(rates[at] / ideal)} % of the ideal`),
    };
  };
  const lines = [strong, weak].map(line), ticks = [...new Set(lines.flatMap((one) => one.gpus))].sort((a, b) => a - b), missing = [...new Set(lines.flatMap((one) => one.missing))].sort((a, b) => a - b);
  return {
    lines, before: before ? before.map(line) : [], longest: lines[1].gpus.length > lines[0].gpus.length ? lines[1] : lines[0], ticks, labels: ticks.map(counted),
    title: `${heading}${missing.length ? `<br><sub>Nothing fits on ${missing.map(counted).join(", ")} GPUs</sub>` : ""}`,
  };
}
function scalingChart(points, was, heading, view, look, narrow) { return fitted(view.charts.scaling, scaled(points, was, view.tokens / costmodel.asked.global_batch, heading, view), look, narrow); }

// What `costmodel.plots.sensitivity.Tornado` holds: of each quantity the step's times at both ends, the texts of their hovers, and its ends before a change [%].
const changeOf = (time, now) => 100 * (time / now - 1), percents = (change) => `${change < 0 ? "−" : "+"}${Math.abs(Number(change.toPrecision(2)))} %`;
function tornado(head, plan, rows, now, named) {
  const swing = ({times}) => Math.abs(times[1] - times[0]), most = 1e-9 * now, shown = rows.filter((one) => swing(one) > most).sort((a, b) => swing(b) - swing(a));
  const ends = named.map(([name, colour, pattern], end) => ({name, colour, pattern, changes: shown.map(({times}) => changeOf(times[end], now)), texts: shown.map(({texts}) => texts[end])}));
  const was = shown.map(({before}, place) => ({place, before})).filter(({before}) => before);
  const widest = Math.max(...ends.flatMap(({changes}) => changes.map(Math.abs)), ...was.flatMap(({before}) => before.map(Math.abs)), 0) || 1;
  return {
    head, plan, quantities: shown.map(({quantity}) => quantity), names: shown.map(({name}, row) => `${name}<br><b>${percents(ends[0].changes[row])} to ${percents(ends[1].changes[row])}</b>`),
    places: [...shown.keys()], ends, span: [-1.06 * widest, 1.06 * widest], height: 0,
    ghosts: {places: was.map(({place}) => place), lows: was.map(({before: [low]}) => low), widths: was.map(({before: [low, high]}) => high - low), texts: was.map(({before: [low, high]}) => `before the change: ${percents(low)} to ${percents(high)}`)},
  };
}
function sensitivityChart(head, plan, rows, now, named, view, look, narrow) { return fitted(view.charts.sensitivity, tornado(head, plan, rows, now, named), look, narrow); }

// What `costmodel.plots.pipeline.Pipeline` holds of a step: all of it, or where that is too much its beginning and its end, as long as
// are returned beside, both on one axis, as wide as one another.
const DRAWN_PASSES = 200, HOLDERS = 3;
function pipeline(got, was, view, narrow, most = narrow ? DRAWN_PASSES / 2 : DRAWN_PASSES, held = HOLDERS) {
  const {kind, rank, micro, stage, duration, end, kinds, ranks, total} = got, [size, unit] = secondsUnit(total);
  const drawn = kinds.map((name) => name in view.passes), begun = (e) => end[e] - duration[e];
  let passes = [];
  for (let e = 0; e < kind.length; e++) if (drawn[kind[e]] && duration[e] > 0) passes.push(e);
  const cut = passes.length > most, between = narrow ? 0.17 : 0.04, spans = [[0, total]];
  if (cut) {
    const starts = new Float64Array(passes.length), ends = new Float64Array(passes.length);
    passes.forEach((e, place) => { starts[place] = begun(e); ends[place] = end[e]; });
    spans.splice(0, 1, [0, starts.sort()[most / 2]], [ends.sort()[ends.length - most / 2], total]);
    passes = passes.filter((e) => begun(e) < spans[0][1] || end[e] > spans[1][0]);
  }
  const at = (time, place) => cut ? place * (1 + between) + (time - spans[place][0]) / (spans[place][1] - spans[place][0]) : time / size;
  const path = (boxes, of) => boxes.flatMap((box) => [...of(box), null]);  // one around many boxes
  const corners = ([first, last]) => [first, first, last, last], sides = ([, , high, low]) => [high, low, low, high];
  // A pass in each half that it reaches into: where it begins and ends, its row, and what it is; a half shows no more than itself.
  const inside = (first, last, high, low, e) => spans.flatMap(([from, to], place) =>
    first < to && last > from ? [[at(Math.max(first, from), place), at(Math.min(last, to), place), high, low, e]] : []);
  const top = was ? -0.27 : -0.43, said = new Map(), words = (e, name, called) => {
    if (!said.has(e)) said.set(e, `rank ${rank[e]}: ${name === "sync" ? called : `${name} of micro-batch ${micro[e]} on stage ${stage[e]}`}<br>${seconds(begun(e))} to ${seconds(end[e])}, ${seconds(duration[e])}`);
    return said.get(e);
  };
  const boxes = Object.entries(view.passes).flatMap(([name, [called, colour, pattern]]) => {
    const own = passes.filter((e) => kinds[kind[e]] === name).flatMap((e) => inside(begun(e), end[e], rank[e] + 0.43, rank[e] + top, e));
    return own.length ? [{name: called, colour, pattern, x: path(own, corners), y: path(own, sides), texts: path(own, ([, , , , e]) => Array(4).fill(words(e, name, called)))}] : [];
  });
  const before = [];
  if (was) {
    const drawn = was.kinds.map((name) => name in view.passes), [, shortly] = spans[0], [lately] = spans.at(-1);
    for (let e = 0; e < was.kind.length; e++) {
      const first = was.end[e] - was.duration[e];
      if (drawn[was.kind[e]] && was.duration[e] > 0 && (first < shortly || was.end[e] > lately)) before.push(...inside(first, was.end[e], was.rank[e] - 0.31, was.rank[e] - 0.43, e));
    }
  }
  const ghosts = was ? [{name: BEFORE, x: path(before, corners), y: path(before, sides)}] : [];
  const many = Math.min(ranks, held), holders = [...new Set(Array.from({length: many}, (_, place) => Math.round(place * (ranks - 1) / Math.max(1, many - 1))))];
  const lines = holders.map((holder, order) => {
    const [when, count] = got.held(holder), [colour, dash] = view.series.held[order], moments = [], counts = [], since = [];
    spans.forEach(([from, to], place) => {
      const put = (time, number, moment) => { moments.push(moment); counts.push(number); since.push(time / size); };
      if (place) put(0, null, null);
      when.forEach((time, step) => { if (time <= to && (when[step + 1] ?? Infinity) >= from) put(time, count[step], at(Math.max(time, from), place)); });
      if (since.length) put(since.at(-1) * size, counts.at(-1), at(to, place));
    });
    return {rank: holder, moments, counts, since, colour, dash, name: `held by rank ${holder}`};
  });
  const marks = cut && spans.map(([from, to], place) => marked(from / size, to / size, narrow ? 3 : 6).map(([time, text]) => [at(time * size, place), text])).flat();
  return [{
    title: "", unit, ghosts, bars: [], boxes, lines, span: cut ? [0, 2 + between] : [0, total / size], axis: `time [${unit}]${cut ? ": beginning and end" : ""}`,
    marks: marks && {places: marks.map(([place]) => place), labels: marks.map(([, text]) => text)}, rows: [ranks - 0.4, -0.6], every: Math.max(1, Math.ceil(ranks / 8)), height: 0,
  }, cut && [spans[0][1], total - spans[1][0]]];
}
// Round numbers from one to another, no more than so many but for one, and how they are written.
function marked(from, to, most) {
  const least = (to - from) / most, power = 10 ** Math.floor(Math.log10(least)), step = power * [1, 2, 5, 10].find((one) => one * power >= least);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9)), marks = [];
  for (let n = Math.ceil(from / step - 1e-9); n * step <= to * (1 + 1e-12); n++) marks.push([n * step, (n * step).toFixed(digits)]);
  return marks;
}
// Share of a period that the ranks neither compute nor sync, as `costmodel.Timeline.bubble_rate` has it.
function bubbleOf({kind, rank, start, end, duration, kinds, ranks}, view) {
  const first = Array(ranks).fill(Infinity), last = Array(ranks).fill(0), busy = Array(ranks).fill(0);
  for (let e = 0; e < kind.length; e++) if (kinds[kind[e]] in view.passes) {
    const one = rank[e];
    if (kinds[kind[e]] !== "sync") first[one] = Math.min(first[one], start[e]);
    last[one] = Math.max(last[one], end[e]);
    busy[one] += duration[e];
  }
  return 1 - busy.reduce((sum, one) => sum + one, 0) / ranks / Math.max(...last.map((one, place) => one - Math.min(first[place], one)));
}
function timelineChart(got, was, view, look, narrow) {
  const [made, shown] = pipeline(got, was, view, narrow);
  return [fitted(view.charts.timeline, made, look, narrow), shown];
}

// Drawn figures as tables, for whoever doesn't see them: a row for each point of each series, or for each box that a path goes around.
const MOST_ROWS = 300, plainText = (text) => String(text).replaceAll("<br>", " ").replace(/<[^>]*>/g, "");
function rowsOf({x = [], y = [], fill, name = "", ...one}, [vertical, horizontal]) {
  const said = ({tickvals, ticktext}, value) => typeof value !== "number" ? String(value) : ticktext && tickvals.includes(value) ? plainText(ticktext[tickvals.indexOf(value)]) : amount(value);
  const words = [one.hovertext, one.text].find(Array.isArray) ?? [];
  if (fill && words.length) return [...new Set(words)].filter(Boolean).map((text) => [name, "", "", plainText(text)]);
  return Array.from(x).flatMap((value, place) => value === null ? [] : [[name, said(vertical, y[place]), said(horizontal, value), plainText(words[place] ?? "")]]);
}
function tabulate(box, figures) {
  const made = (tag, ...children) => { const one = document.createElement(tag); one.append(...children); return one; };
  const line = (kind, cells) => made("tr", ...cells.map((cell) => made(kind, cell))), parts = new Map();
  for (const {data, layout} of figures) for (const one of data) if (one.visible !== false && one.hoverinfo !== "skip") {
    const axes = ["y", "x"].map((letter) => layout[`${letter}axis${(one[`${letter}axis`] ?? letter).slice(1)}`] ?? {}), rows = rowsOf(one, axes);
    const heads = ["series", ...axes.map(({title}) => plainText(title?.text ?? "") || "of"), "in words"], key = heads.join();
    parts.set(key, {heads, rows: [...(parts.get(key)?.rows ?? []), ...rows]});
  }
  box.replaceChildren(...[...parts.values()].filter(({rows}) => rows.length).flatMap(({heads, rows}) => {
    const there = [0, 1, 2, 3].filter((place) => rows.some((row) => row[place])), left = rows.length - MOST_ROWS;
    const body = rows.slice(0, MOST_ROWS).map((row) => line("td", there.map((place) => row[place])));
    return [made("table", made("thead", line("th", there.map((place) => heads[place]))), made("tbody", ...body)), ...(left > 0 ? [made("p", `and ${counted(left)} more`)] : [])];
  }));
}

// A drawing as a picture to send, with the title and the key that stand beside it on the page.
function saveImage({data, layout, clientWidth: width, clientHeight: height}, text, ground, filename) {
  const named = {showlegend: true, legend: {orientation: "h", y: -0.3}, title: {text, font: {size: 13}}, margin: {...layout.margin, t: 44}, paper_bgcolor: ground, plot_bgcolor: ground};
  Plotly.downloadImage({data, layout: {...layout, ...named}}, {format: "png", width, height: height + 130, scale: 2, filename});
}

// What a colour or a sign means, beside the drawing; patterns as in the bars.
const HATCHES = {"/": "repeating-linear-gradient(135deg,#fff8 0 1.5px,#0000 1.5px 5px)", "\\": "repeating-linear-gradient(45deg,#fff8 0 1.5px,#0000 1.5px 5px)",
  x: "repeating-linear-gradient(45deg,#fff8 0 1.5px,#0000 1.5px 6px),repeating-linear-gradient(135deg,#fff8 0 1.5px,#0000 1.5px 6px)",
  "+": "repeating-linear-gradient(0deg,#fff8 0 1.5px,#0000 1.5px 6px),repeating-linear-gradient(90deg,#fff8 0 1.5px,#0000 1.5px 6px)",
  ".": "radial-gradient(#fffc 1.2px,#0000 1.4px) 0 0/5px 5px", "-": "repeating-linear-gradient(0deg,#fff8 0 1.5px,#0000 1.5px 5px)", "|": "repeating-linear-gradient(90deg,#fff8 0 1.5px,#0000 1.5px 5px)"};
const paint = (colour, pattern) => pattern in HATCHES ? `${HATCHES[pattern]}, ${colour}`.replace(/ 0 0\/5px 5px, (.*)$/, " 0 0/5px 5px, $1") : colour;
function legend(data) {
  return data.filter((one) => one.visible !== false && one.showlegend !== false && one.type !== "waterfall" && one.name).map((one) => {
    const {color, pattern, symbol, size} = one.fill ? {color: one.fillcolor, pattern: one.fillpattern} : one.marker ?? {};
    const key = one.type === "bar" || one.fill ? "patch" : size === 1 ? "whisker" : one.line?.dash && one.line.dash !== "solid" ? one.line.dash.includes("dash") ? "dash" : one.line.dash : symbol?.includes("open") ? "open" : (one.mode ?? "").includes("lines") ? "line" : "point";
    return {name: one.name, key, colour: size === 1 ? one.error_x.color : color ?? one.line?.color, pattern: pattern?.shape ?? ""};
  });
}
function keyed(box, data) {
  box.replaceChildren(...legend(data).map(({name, key, colour, pattern}) => {
    const line = document.createElement("li"), sign = document.createElement("i"), seen = colour === "#000000" ? "var(--ink)" : colour;
    sign.className = key;
    sign.style.background = paint(seen, pattern);
    sign.style.borderColor = seen;
    line.append(sign, name);
    return line;
  }));
}
