// The page: what is dragged goes to the worker, what comes back is drawn. The state is in the address.
"use strict";
const view = JSON.parse(document.getElementById("view").textContent);
const $ = (id) => document.getElementById(id);
const element = (tag, attributes = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children);
  return made;
};
const DEGREES = view.words.degrees, TOP = 20, FEW = 5, DRAWN = 3;
const TABS = {time: "Time", memory: "Memory", frontier: "Frontier", scaling: "Scaling", sensitivity: "Sensitivity", timeline: "Timeline", difference: "Difference"};
const OF_ONE = ["scaling", "sensitivity", "timeline"];
const WIDTH = matchMedia("(max-width: 860px)"), DARK = matchMedia("(prefers-color-scheme: dark)");
const state = {changes: {}, chosen: null, beside: null, own: null, tab: "time", sort: null, comparing: false, all: false, wrong: ""};
let found = null, last = null, unchanged = null, started = 0;  // what is on show, what was searched last, and for the question as asked

const named = new Map();
const nameOf = (row) => { if (!named.has(row)) named.set(row, planLabel(wholePlan(fieldsOf(row)))); return named.get(row); };
const fieldsOf = (row) => Object.fromEntries(Object.entries(view.columns).map(([name, {values, index}]) => [name, values[index ? index[row] : 0]]));
const timeline = timelineOf(costmodel, JSON.parse($("orders").textContent));
const wholePlan = (plan) => ({...costmodel.asked, ...plan});
const modelChanges = () => { const {price, ...others} = state.changes; return others; };
const price = () => state.changes.price ?? view.price;
const moved = () => Object.keys(modelChanges()).length > 0;

// the worker
const shared = $("formulas") ? `importScripts(${JSON.stringify($("formulas").src)});\n` : "";  // of a site, whose pages share them
const text = shared + $("model").textContent + $("worker").textContent;
const address = URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
const worker = new Worker(address);
let answering = null, wanted = false, followedAt = 0;
const waiting = new Map();
let asked = 0;
worker.postMessage({view: {columns: view.columns, plans: view.plans, margin: view.margin, ranking: view.ranking, fitting: view.fitting, twin: view.words.twin}});
worker.onerror = (event) => { console.error(event.message); };
worker.onmessage = ({data}) => { const {id} = data, done = waiting.get(id); waiting.delete(id); done(data); };
function searched(changes, keep = [], top = TOP) {
  return new Promise((done) => { const id = ++asked; waiting.set(id, done); worker.postMessage({id, changes, top, keep}); });
}
// What is asked now: of the plans on show at once, of all as soon as they are searched, whose answer stands.
function ask() {
  wanted = true;
  const shown = follow(), answered = answering ??= (shown ? rested() : Promise.resolve()).then(answer).finally(() => { answering = null; });
  return answered;
}
async function answer() {
  while (wanted) {
    wanted = false;
    const since = started, changes = modelChanges(), got = last = asBefore(changes) ?? await searched(changes, watched());
    if (!Object.keys(changes).length) unchanged = got;
    if (wanted && found) { await rested(); continue; }  // what is on show follows the sliders already
    found = got;
    render();
    const settled = performance.now() - since;
    if (since) window.costmodel.redraw = {milliseconds: followedAt > since ? followedAt - since : settled, settled, search: got.milliseconds};
    keepAddress();
  }
}
function follow() {
  const made = last && (asBefore(modelChanges()) ?? followed(last, modelChanges()));
  if (!made) return false;
  found = made;
  render();
  followedAt = performance.now();
  return true;
}
const watched = () => [state.chosen, state.beside].filter(Number.isInteger);
const priced = (row, changes) => { const plan = fieldsOf(row); return {row, plan, ...costmodel.evaluate({...plan, ...changes})}; };
// The answer to the question as asked is known.
const asBefore = (changes) => unchanged && !Object.keys(changes).length ? {...unchanged, kept: watched().map((row) => priced(row, {}))} : null;
// What the first move of a slider compares with is worked out while nothing else is to do.
const idle = (work) => (window.requestIdleCallback ?? setTimeout)(work);
// Once what follows a slider is painted, or a quarter of a second later: a search beside it takes its time where there are few cores.
const rested = () => new Promise((done) => (window.requestIdleCallback ? requestIdleCallback(done, {timeout: 250}) : setTimeout(done, 50)));
function ahead(plans = (found?.ranked ?? []).map(({plan}) => plan)) {
  if (plans.length) idle(() => { asItWas(plans[0]); ahead(plans.slice(1)); });
}
// The plans of a search under other values of the sliders, or where none of them fits those that were the fastest of all that do;
// null where no plan does.
function followed({ranked, miss, times, bytes}, changes) {
  const price = (row) => priced(row, changes), limit = view.margin * (changes["device.memory"] ?? costmodel.asked["device.memory"]);
  const fitting = [...bytes.keys()].filter((row) => bytes[row] <= limit), shown = [...ranked, ...(miss ? [miss] : [])].map(({row}) => row);
  const rows = shown.some((row) => bytes[row] <= limit) ? [] : fitting.sort((one, other) => times[one] - times[other]).slice(0, TOP);
  const all = [...new Set([...shown, ...rows])].map(price).sort((one, other) => one.step_time_s - other.step_time_s);
  const [inside, over] = [true, false].map((fits) => all.filter((one) => (one.peak_memory_bytes <= limit) === fits));
  if (!inside.length) return null;
  const close = over.find((one) => one.step_time_s < inside[0].step_time_s && one.peak_memory_bytes <= 1.5 * limit);
  return {ranked: inside.slice(0, TOP), miss: close ?? null, kept: watched().map(price), limit, fitting: fitting.length, followed: changes};
}
// Times and memory of all plans; while a slider moves, of those that the chart of all showed.
const prepared = {key: null, rows: new Map()};
function spread() {
  const {followed: changes, limit} = found;
  if (!changes) return found;
  const rows = last.drawn ??= frontier(last, null, nameOf, view).rows, fields = {...costmodel.asked, ...changes}, own = costmodel.modelOf(fields);
  const ofModel = Object.entries(changes).filter(([name]) => name.startsWith("model.")), key = JSON.stringify(ofModel);
  if (prepared.key !== key) Object.assign(prepared, {key, rows: new Map()});
  for (const row of rows) if (!prepared.rows.has(row)) prepared.rows.set(row, costmodel.prepared([{...fieldsOf(row), ...Object.fromEntries(ofModel)}], own)[0]);
  return {...costmodel.steps(rows.map((row) => prepared.rows.get(row)), own, fields), rows, limit};
}
function drag(field, value) {
  started = performance.now();
  state.wrong = "";
  if (value === null) delete state.changes[field]; else state.changes[field] = value;
  if (field !== "price") { ask(); return; }
  render();
  keepAddress();
  const milliseconds = performance.now() - started;
  window.costmodel.redraw = {milliseconds, settled: milliseconds, search: 0};
}

// rows: what the table and the charts show
const before = new Map();
function entry(one, kind) {
  const made = {...one, kind, name: planLabel(wholePlan(one.plan)), fastest: null, either: "", tied: false};
  const known = view.ranking.find(({row}) => row === one.row);
  made.error = known?.error ?? view.error;
  made.unknown = known && !moved() ? known.unknown : "";
  if (known && !moved()) Object.assign(made, {fastest: known.fastest, either: known.either, tied: known.tied});  // as drawn for the question as asked
  if (moved()) made.before = asItWas(one.plan);
  return made;
}
function asItWas(plan) {
  const key = JSON.stringify(plan);
  if (!before.has(key)) before.set(key, costmodel.evaluate(plan));
  return before.get(key);
}
function entries() {
  const list = found.ranked.map((one, place) => ({...entry(one, "fits"), place: place + 1}));
  const held = new Set(list.map((one) => one.row));
  for (const one of found.kept) if (!held.has(one.row)) { held.add(one.row); list.push({...entry(one, one.peak_memory_bytes <= found.limit ? "kept" : "misses"), place: null}); }
  if (found.miss && !held.has(found.miss.row)) list.push({...entry(found.miss, "misses"), place: null});
  if (state.own) {
    const plan = {...wholePlanOf(state.own.from), ...state.own.changes}, one = costmodel.evaluate({...plan, ...modelChanges()});
    if (one.error) state.own.error = one.error;
    else {
      delete state.own.error;
      list.unshift({...entry({...one, plan, row: "own"}, one.peak_memory_bytes <= found.limit ? "own" : "own misses"), place: null});
    }
  }
  distinguish(list);
  return list;
}
// Plans of the same degrees are told apart by what else differs between them, or by their place.
function distinguish(list) {
  const groups = Map.groupBy ? Map.groupBy(list, (one) => one.name) : list.reduce((map, one) => map.set(one.name, [...(map.get(one.name) ?? []), one]), new Map());
  for (const group of groups.values()) {
    if (group.length < 2) continue;
    const names = Object.keys(view.columns).filter((name) => new Set(group.map((one) => String(one.plan[name]))).size > 1);
    for (const one of group) one.name = [one.name, ...names.slice(0, 2).map((name) => `${title(name)} ${one.plan[name] ?? "default"}`)].join(", ");
  }
  const seen = new Map();
  for (const one of list) { const count = (seen.get(one.name) ?? 0) + 1; seen.set(one.name, count); if (count > 1) one.name += ` (${count})`; }
}
const wholePlanOf = (row) => Number.isInteger(row) ? fieldsOf(row) : {};
const chosenOf = (list) => list.find((one) => one.row === state.chosen) ?? list.find((one) => one.place === 1) ?? list[0];
const besideOf = (list, chosen) => list.find((one) => one.row === state.beside && one !== chosen) ?? list.find((one) => one.place !== null && !twins(one, chosen)) ?? list.find((one) => one !== chosen && !twins(one, chosen));
const alike = (one, other) => Math.abs(one / other - 1) <= view.words.twin;
const twins = (one, other) => alike(one.step_time_s, other.step_time_s) && alike(one.peak_memory_bytes, other.peak_memory_bytes);
const throughput = (one) => view.tokens / one.step_time_s;
const utilisation = (one) => view.utilisation * one.model_flop / one.step_time_s * (costmodel.peak / (state.changes["device.flop_rate"] ?? costmodel.peak));
const cost = (one) => one.gpu_hours * price();

// the sentence
function say(list) {
  const one = chosenOf(list), answer = $("answer"), low = Math.exp(view.shift - one.error), high = Math.exp(view.shift + one.error);
  const fits = one.peak_memory_bytes <= found.limit;
  answer.className = fits ? "" : "bad";
  answer.replaceChildren(element("b", {}, between(one.step_time_s)), ` a step with ${one.name}: ${wholePercent(utilisation(one))} % MFU, ${gib(one.peak_memory_bytes)} of ${gib(found.limit)} GiB${fits ? "" : ": does not fit"}`);
  const words = [`${between(one.step_time_s * low, one.step_time_s * high)} with 90 % probability`], count = (number) => number.toLocaleString("en");
  if (one.place) words.push(`number ${one.place} of the ${count(found.fitting)} that fit among ${moved() ? `the ${count(view.plans)} plans that this page holds` : `${count(view.legal)} legal plans`}`);
  if (one.fastest !== null) words.push(`P(fastest) ${wholePercent(one.fastest)} %`);
  words.push(`a step costs ${cost(one).toPrecision(3)} at ${price().toFixed(2)} a GPU-hour`);
  const evidence = (view.runs ? `${view.runs.toLocaleString("en")} measured runs of ${view.facts.Cluster.framework}` : `no run of ${view.facts.Cluster.framework}`) + (view.calibrated ? "" : ", none on this GPU") + (one.unknown ? `; ${one.unknown}` : "");
  $("sure").replaceChildren(`${words.join(", ")} `, element("span", {class: "evidence"}, evidence));
}

// the table
const COLUMNS = [
  {key: "place", head: "#", of: (one) => one.place ?? Infinity},
  {key: "plan", head: "plan", w: true, of: (one) => one.name},
  {key: "parts", head: "step time by part", w: true, hide: false, of: (one) => one.step_time_s - one.parts.forward - one.parts.backward},
  {key: "time", head: "s", of: (one) => one.step_time_s},
  {key: "rate", head: "tokens/s/GPU", hide: true, of: (one) => throughput(one)},
  {key: "memory", head: "memory by part", w: true, hide: true, of: (one) => one.peak_memory_bytes - one.memory_parts.weights},
  {key: "bytes", head: "GiB", of: (one) => one.peak_memory_bytes},
  {key: "fastest", head: "P(fastest)", hide: true, of: (one) => one.fastest ?? -1},
];
function stacked(parts, looks, whole, mark, words) {
  const span = element("span");
  for (const [part, [colour, pattern]] of Object.entries(looks)) {
    if (!(parts[part] > 0)) continue;
    const piece = element("i", {title: `${title(part)}: ${words(parts[part])}`});
    piece.style.width = `${100 * parts[part] / whole}%`;
    piece.style.background = paint(colour, pattern);
    span.append(piece);
  }
  const bar = element("div", {class: "bar"}, span);
  if (mark !== null && mark < 1) { const limit = element("u"); limit.style.left = `${100 * mark}%`; bar.append(limit); }
  return bar;
}
function heads() {
  $("heads").replaceChildren(...COLUMNS.map(({key, head, w, hide}) => element("th", {scope: "col", class: [w && "w", hide && "hide"].filter(Boolean).join(" ") || null,
    "aria-sort": state.sort?.key === key ? (state.sort.down ? "descending" : "ascending") : null},
    element("button", {type: "button", onclick: () => { state.sort = state.sort?.key === key && state.sort.down ? null : {key, down: state.sort?.key === key}; heads(); render(); }}, head))));
}
function table(list) {
  const shown = list.filter((one) => state.all || !(one.place > FEW) || one === chosenOf(list) || one === besideOf(list, chosenOf(list))), left = list.length - shown.length, sort = state.sort && COLUMNS.find(({key}) => key === state.sort.key);
  if (sort) shown.sort((a, b) => (sort.of(a) < sort.of(b) ? -1 : sort.of(a) > sort.of(b) ? 1 : 0) * (state.sort.down ? -1 : 1));
  $("more").textContent = state.all ? "fewer plans" : left === 1 ? "1 more plan" : `${left} more plans`;
  $("more").hidden = !state.all && !left;
  $("more").setAttribute("aria-expanded", String(state.all));
  const longest = Math.max(...list.map((one) => one.step_time_s)), fullest = Math.max(found.limit * 1.02, ...list.map((one) => one.peak_memory_bytes));
  const chosen = chosenOf(list), beside = state.comparing ? besideOf(list, chosen) : null, active = document.activeElement?.dataset?.row;
  $("rows").replaceChildren(...shown.map((one) => {
    const off = one.peak_memory_bytes > found.limit;
    const note = off ? `${gib(one.peak_memory_bytes - found.limit)} GiB over` : one.row === "own" ? "yours" : one.either;
    const button = element("button", {type: "button", "data-row": one.row, "aria-pressed": String(one === chosen), onclick: () => choose(one.row)}, one.name, ...(one.tied ? [element("span", {title: view.words.tied}, "\u00a0~")] : []), " ", element("small", {}, note));
    return element("tr", {class: [one === chosen && "on", one === beside && "beside", off && "off"].filter(Boolean).join(" ") || null},
      element("td", {}, one.place === null ? "–" : String(one.place)), element("td", {class: "w plan"}, button),
      element("td", {class: "w"}, stacked(one.parts, view.time, longest, null, seconds)), element("td", {}, figures(one.step_time_s, 4)),
      element("td", {class: "hide"}, amount(throughput(one) / view.gpus)),
      element("td", {class: "w hide"}, stacked(one.memory_parts, view.memory, fullest, found.limit / fullest, (n) => `${gib(n)} GiB`)),
      element("td", {}, (one.peak_memory_bytes / GIB).toFixed(1)), element("td", {class: "hide"}, one.fastest === null ? "–" : `${wholePercent(one.fastest)} %`));
  }));
  if (active) document.querySelector(`#rows [data-row="${active}"]`)?.focus();
}
function choose(row) {
  started = performance.now();
  if (state.comparing && row !== state.chosen) { if (state.beside === row) { state.chosen = row; state.beside = null; } else state.beside = row; }
  else state.chosen = state.chosen === row ? null : row;
  keepAddress(true);
  fillPlan();
  ask();
}

// the charts
function tabs() {
  $("tabs").replaceChildren(...Object.entries(TABS).map(([key, words]) => element("button", {type: "button", role: "tab", id: `tab-${key}`, "aria-controls": "panel",
    "aria-selected": String(state.tab === key), tabindex: state.tab === key ? "0" : "-1", onclick: () => tab(key), onkeydown: step}, words)));
  $("panel").setAttribute("aria-labelledby", `tab-${state.tab}`);
}
function step(event) {
  const keys = Object.keys(TABS), at = keys.indexOf(state.tab);
  const next = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: keys.length - 1}[event.key];
  if (next === undefined) return;
  event.preventDefault();
  tab(keys[(next + keys.length) % keys.length]);
  $(`tab-${state.tab}`).focus();
}
function tab(key) { state.tab = key; keepAddress(true); tabs(); if (found) draw(entries()); }
// The same plan with more or fewer data-parallel copies: with the same global batch, and with one that grows with the GPUs.
function scaling(one, changes = modelChanges()) {
  const base = {...one.plan, ...changes}, batch = costmodel.asked.global_batch, plan = wholePlan(one.plan), sizes = [];
  for (const share of [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16]) if (Number.isInteger(plan.data_parallel * share) && Number.isInteger(view.gpus * share)) sizes.push(share);
  const point = (share, global_batch) => {
    const gpus = view.gpus * share, data_parallel = plan.data_parallel * share, got = costmodel.evaluate({...base, data_parallel, gpus, global_batch});
    if (got.error) return [];
    const ends = {low: got.step_time_s * Math.exp(view.shift - one.error), high: got.step_time_s * Math.exp(view.shift + one.error)};
    return [{gpus, batch: global_batch, step_time_s: got.step_time_s, ...ends, name: planLabel({...plan, data_parallel})}];
  };
  return [sizes.flatMap((share) => point(share, batch)), sizes.flatMap((share) => Number.isInteger(batch * share) ? point(share, batch * share) : [])];
}
const FIFTHS = ["a fifth less", "a fifth more"];
function slopes(one, changes = modelChanges()) {
  const base = {...one.plan, ...changes}, first = costmodel.evaluate(base).step_time_s;
  const rows = view.sliders.filter(({field}) => field !== "price").map(({field, label: name, value}) => {
    const now = changes[field] ?? value, times = [0.8, 1.2].map((by) => { const got = costmodel.evaluate({...base, [field]: now * by}); return got.error ? first : got.step_time_s; });
    return {quantity: field, name, times, texts: times.map((time, end) => `${name}, ${FIFTHS[end]}: ${seconds(time)} a step`)};
  });
  return {rows, first};
}
// What a chart showed before the sliders moved: worked out once for each plan.
const ghosts = new Map();
function ghost(kind, one, make) {
  if (!moved()) return null;
  const key = `${kind} ${JSON.stringify(one.plan)}`;
  if (!ghosts.has(key)) ghosts.set(key, make(one, {}));
  return ghosts.get(key);
}
function played(one, look, narrow) {
  const got = timeline({...one.plan, ...modelChanges()});
  if (got instanceof Promise) { got.then(() => { of = ""; if (state.tab === "timeline" && found) draw(entries()); }); return [[[], frame(look, narrow, {})], "…"]; }
  if (got.error) return [[[], frame(look, narrow, {})], got.error];
  const was = ghost("timeline", one, () => timeline(one.plan));
  const [drawing, shown] = timelineChart(got, was?.total ? was : null, view, look, narrow), name = one.name;
  const apart = seconds(got.total) === seconds(one.step_time_s) ? ", as is estimated" : `, where ${seconds(one.step_time_s)} are estimated`;
  const part = shown ? ` Drawn: its first ${seconds(shown[0])} and its last ${seconds(shown[1])}; between them it goes on in the same way.` : "";
  return [drawing, `${name}: one pipeline's step under ${got.name}, ${got.micro_batches.toLocaleString("en")} micro-batches, ${seconds(got.total)}${apart}.${part}`];
}
function swings(one, look, narrow) {
  const {rows, first} = slopes(one), was = ghost("sensitivity", one, slopes), then = new Map(was?.rows.map(({quantity, times}) => [quantity, times.map((time) => changeOf(time, was.first))]));
  const ends = view.series.ends.map(([, ...looks], end) => [FIFTHS[end], ...looks]);
  return sensitivityChart(`Sensitivity of ${seconds(first)} a step, each constant a fifth less and a fifth more, the others as they are`, one.name, rows.map((row) => ({...row, before: then.get(row.quantity)})), first, ends, view, look, narrow);
}
function everyPlan(look, narrow) {
  const all = spread(), drawing = frontierChart(all, moved() ? unchanged : null, nameOf, view, look, narrow);
  if (all === last) [, , , last.drawn] = drawing;
  return drawing;
}
let drawn = "", of = "";
function draw(list) {
  const colours = look(), narrow = WIDTH.matches, chosen = chosenOf(list), beside = besideOf(list, chosen);
  // What is worked out of one plan alone is there already where neither it nor the question is another.
  const alone = OF_ONE.includes(state.tab) ? JSON.stringify([state.tab, chosen.plan, chosen.name, chosen.error, modelChanges(), colours, narrow, innerWidth]) : "";
  if (alone && alone === of) return;
  of = alone;
  const few = [chosen, ...(state.comparing && beside ? [beside] : list.filter((one) => one !== chosen && one.place !== null).slice(0, DRAWN - 1))];
  const draws = {
    timeline: () => played(chosen, colours, narrow),
    time: () => [timeChart(few, view, colours, narrow), ""],
    memory: () => [memoryChart(few, view, colours, narrow, found.limit, found.limit / view.margin), "The fullest GPU of each plan, by part. Line: up to which a plan is judged to fit; dotted: what a process can use."],
    frontier: () => [everyPlan(colours, narrow), `This page holds ${view.plans.toLocaleString("en")} of the ${view.legal.toLocaleString("en")} legal plans.`],
    scaling: () => [scalingChart(scaling(chosen), ghost("scaling", chosen, scaling), "Throughput of a GPU with more or fewer data-parallel copies; whiskers: 90 %", view, colours, narrow), `${chosen.name}; what breaks a rule is left out.`],
    sensitivity: () => [swings(chosen, colours, narrow), ""],
    difference: () => beside ? [differenceChart(chosen, beside, view, colours, narrow), "Press Compare, then choose the other plan."] : [[[], frame(colours, narrow, {})], "There is no second plan."],
  };
  const [[data, layout, heading = ""], more] = draws[state.tab](), reading = [heading, more].filter(Boolean).join(". ");
  $("chart").hidden = !data.length;  // then words stand for it; what is hidden has no size to be drawn in
  const text = data.length ? JSON.stringify([data, layout]) : "", same = text === drawn;
  drawn = text;
  if (data.length && !same) plotted(() => {
    Plotly.react("chart", data, layout, {displayModeBar: false, responsive: true, scrollZoom: false});
    $("js-plotly-tester")?.setAttribute("aria-hidden", "true");  // where Plotly measures its texts
  });
  $("chart").setAttribute("role", "img");
  $("chart").setAttribute("aria-label", `${TABS[state.tab]}: ${reading}`);
  $("reading").textContent = reading;
  if (!same) numbers();
  keyed($("legend"), data);
}

// The drawing's numbers, for whoever asks for them.
function numbers() { if ($("numbers").open) plotted(() => tabulate($("numbers").lastElementChild, [$("chart")].filter(({hidden}) => !hidden))); }

// what the change did, in words
function differ(list) {
  const shown = Object.keys(state.changes).length > 0 && unchanged;
  if (!shown) { $("diff").textContent = ""; return; }
  const names = Object.entries(state.changes).map(([field, value]) => { const one = view.sliders.find((slider) => slider.field === field); return `${one.label} ${factor(value / one.value) || "as it was"}`; });
  const first = unchanged.ranked[0] ?? unchanged.miss, same = costmodel.evaluate({...first.plan, ...modelChanges()});
  const best = found.ranked[0];
  const words = [`${names.join(", ")}: ${seconds(first.step_time_s)} → ${seconds(same.step_time_s)} (${signed(same.step_time_s / first.step_time_s - 1)}) for the plan that was best${same.peak_memory_bytes > found.limit ? ", which no longer fits" : ""}.`];
  if (!best) words.push("Now no plan fits.");
  else if (best.row !== first.row) words.push(`The best plan is now ${planLabel(wholePlan(best.plan))} at ${seconds(best.step_time_s)}.`);
  else words.push("It is still the best.");
  $("diff").textContent = words.join(" ");
}

// the sliders
const LENGTH = 1000;
const placed = (slider, value) => LENGTH * (slider.logarithmic ? Math.log(value / slider.least) / Math.log(slider.most / slider.least) : (value - slider.least) / (slider.most - slider.least));
const valued = (slider, place) => slider.logarithmic ? slider.least * (slider.most / slider.least) ** (place / LENGTH) : slider.least + (slider.most - slider.least) * place / LENGTH;
const strip = new Map();
function sliders() {
  for (const slider of view.sliders) {
    const id = `drag-${slider.field.replace(/[^a-z0-9]/gi, "-")}`;
    const output = element("output", {for: id}), input = element("input", {type: "range", id, min: 0, max: LENGTH, step: 1});
    const reset = element("button", {type: "button", "aria-label": `reset ${slider.label}`, onclick: () => { drag(slider.field, null); show(); input.focus(); }}, "↺");
    input.addEventListener("input", () => {
      const value = valued(slider, Number(input.value)), back = Math.abs(Number(input.value) - placed(slider, slider.value)) < 6;
      drag(slider.field, back ? null : value);
      show(true);
    });
    input.addEventListener("change", keepAddress);
    const show = (held = false) => {
      const value = state.changes[slider.field] ?? slider.value, unit = slider.unit ? ` ${slider.unit}` : "";
      if (!held) input.value = placed(slider, value);
      const [least, most] = slider.ends, at = (end) => Math.abs(value / end - 1) < 1e-9;
      output.textContent = most && at(slider.most) ? most : least && at(slider.least) ? least : `${slider.field === "price" ? value.toFixed(2) : amount(value / slider.scale)}${unit}`;
      input.setAttribute("aria-valuetext", output.textContent);
      reset.disabled = !(slider.field in state.changes);
      box.classList.toggle("moved", slider.field in state.changes);
    };
    const box = element("div", {class: "drag"}, element("label", {for: id}, slider.label, " "), element("div", {}, input, reset));
    box.firstChild.after(output);
    box.prepend(output);
    strip.set(slider.field, show);
    $("strip").append(box);
    show();
  }
}

// the column: what was asked, and a plan of one's own
const controls = new Map();
function question() {
  for (const [group, facts] of Object.entries(view.facts))
    $("ask").append(element("details", {open: !WIDTH.matches}, element("summary", {}, group), element("dl", {}, ...Object.entries(facts).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]))));
  const main = element("div"), more = element("details", {}, element("summary", {}, "more of the plan"));
  const fields = Object.keys(costmodel.asked).filter((name) => !name.includes(".") && !["gpus", "price"].includes(name));
  const first = new Set([...DEGREES.map(([name]) => name), ...Object.keys(view.columns).filter((name) => view.columns[name].index), "micro_batch", "schedule", "recompute", "zero_stage", "dtype", "adapter", "optimizer"]);
  for (const name of fields) (first.has(name) ? main : more).append(control(name));
  $("ask").append(element("details", {}, element("summary", {}, "Plan"), element("p", {class: "note"}, "Change the chosen plan into one of your own:"), main, more,
    element("button", {type: "button", onclick: () => { state.own = null; if (state.chosen === "own") state.chosen = null; fillPlan(); keepAddress(true); ask(); }}, "Discard it")));
  const tokens = element("input", {type: "number", min: 0, step: "any", value: 1000, id: "tokens"}), paid = element("p", {class: "note", id: "paid", role: "status"});
  tokens.addEventListener("input", () => pay(entries()));
  $("ask").append(element("details", {}, element("summary", {}, "Cost"), element("label", {}, "billion tokens", tokens), paid));
  $("ask").addEventListener("submit", (event) => event.preventDefault());
}
function control(name) {
  const domain = costmodel.domains[name];
  const words = (value) => value === null ? "default" : value === true ? "yes" : value === false ? "no" : Array.isArray(value) ? value.join("-") : String(value);
  let input;
  if (domain.choices.length && !domain.bounds) {
    const values = [...(domain.empty ? [null] : []), ...domain.choices];
    input = element("select", {}, ...values.map((value, place) => element("option", {value: place}, words(value))));
    controls.set(name, {read: () => values[Number(input.value)], write: (value) => { input.value = values.findIndex((one) => words(one) === words(value)); }});
  } else {
    input = element("input", {type: "text", inputmode: domain.choices.length ? "text" : "decimal", autocomplete: "off", placeholder: domain.empty ? "default" : null});
    controls.set(name, {read: () => { const given = input.value.trim(); return given === "" ? (domain.empty ? null : "") : Number.isNaN(Number(given)) ? given : Number(given); }, write: (value) => { input.value = value === null ? "" : String(value); }});
  }
  input.addEventListener("change", () => {
    const value = controls.get(name).read();
    if (!state.own) state.own = {from: Number.isInteger(state.chosen) ? state.chosen : chosenOf(entries()).row, changes: {}};
    state.own.changes[name] = value;
    state.chosen = "own";
    started = performance.now();
    keepAddress(true);
    ask();
  });
  return element("label", {}, title(name), input);
}
function fillPlan() {
  const list = found ? entries() : [], one = list.length ? chosenOf(list) : null;
  if (state.own?.error && state.chosen === "own") return;
  const plan = wholePlan(one ? one.plan : {});
  for (const [name, {write}] of controls) write(plan[name]);
}
function pay(list) {
  const one = chosenOf(list), tokens = Number($("tokens").value) * 1e9;
  if (!(tokens > 0)) { $("paid").textContent = "How many tokens are trained on?"; return; }
  const hours = tokens / throughput(one) / 3600;
  $("paid").textContent = `${amount(hours / 24)} days, ${amount(hours * view.gpus)} GPU-hours, ${amount(hours * view.gpus * price())} at ${price().toFixed(2)} a GPU-hour.`;
}

// what would fit, where nothing does
function offers() {
  const none = !moved() && view.none;
  $("offers").hidden = !none;
  if (!none || $("offers").childElementCount || (window.wouldFit && !view.looked)) return;
  const cells = (kind, row) => row.map((text, place) => element(kind, {scope: kind === "th" ? "col" : null, class: ["w", "hide", null, "hide", null, "w hide"][place]}, text));
  const heads = ["would fit with", "GPUs", "step", "tokens/s/GPU", "memory", "its best plan"];
  $("offers").append(element("p", {}, `${view.none[0].toUpperCase()}${view.none.slice(1)}.`), view.offers.length
    ? element("table", {}, element("caption", {class: "unseen"}, "Changes with which a plan would fit"), element("thead", {}, element("tr", {}, ...cells("th", heads))), element("tbody", {}, ...view.offers.map((row) => element("tr", {}, ...cells("td", row)))))
    : element("p", {}, "No change that was tried makes a plan fit: adapters, an 8-bit optimizer, offload, shorter sequences, more GPUs."));
}

// all of it
function render() {
  if (!found) return;
  const list = entries();
  offers();
  document.body.classList.toggle("stale", Boolean(state.own?.error));  // what is shown answers no more what is asked
  if (!document.activeElement?.closest?.("#ask")) fillPlan();
  $("wrong").textContent = state.own?.error ?? state.wrong;
  say(list); table(list); draw(list); differ(list); pay(list);
}

// the address: a link is a question
function keepAddress(step = false) {
  const parts = new URLSearchParams();
  for (const [field, value] of Object.entries(state.changes)) parts.set(field, String(Number(value.toPrecision(6))));
  if (Number.isInteger(state.chosen)) parts.set("chosen", state.chosen);
  if (Number.isInteger(state.beside)) parts.set("beside", state.beside);
  if (state.own) parts.set("own", JSON.stringify(state.own.changes) + (Number.isInteger(state.own.from) ? `@${state.own.from}` : ""));
  if (state.tab !== "time") parts.set("tab", state.tab);
  const address = `#${parts}`;
  if (step) state.wrong = "";
  if (step && address !== location.hash) history.pushState(null, "", address); else history.replaceState(null, "", address);
}
function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1)), known = new Set(["chosen", "beside", "own", "tab", ...view.sliders.map(({field}) => field)]);
  const wrong = [...(window.complaints ?? [])];
  // What a part of the link says, where it is what that part may be; what is wrong is left out, and said.
  const read = (name, value, wish) => { if (parts.has(name) && value === null) wrong.push(`${name}=${parts.get(name).slice(0, 40)}: expected ${wish}`); return value; };
  const number = (name, least, most) => { const value = Number(parts.get(name) || NaN); return value >= least && value <= most ? value : null; };
  const row = (name) => { const value = number(name, 0, view.plans - 1); return read(name, Number.isInteger(value) ? value : null, `a plan of this page, 0 to ${view.plans - 1}`); };
  for (const name of parts.keys()) if (!known.has(name)) wrong.push(`${name.slice(0, 40)}: expected one of ${[...known].join(", ")}`);
  state.changes = {};
  for (const {field, least, most} of view.sliders) {
    const value = read(field, number(field, least * (1 - 1e-6), most * (1 + 1e-6)), `a number from ${figures(least, 3)} to ${figures(most, 3)}`);
    if (value !== null) state.changes[field] = Math.min(Math.max(value, least), most);
  }
  state.chosen = row("chosen"); state.beside = row("beside"); state.comparing = state.beside !== null;
  state.tab = read("tab", parts.get("tab") in TABS ? parts.get("tab") : null, `one of ${Object.keys(TABS).join(", ")}`) ?? "time";
  const [, text, from] = /^(\{.*\})(?:@(\d+))?$/.exec(parts.get("own") ?? "") ?? [];
  let changes = null;
  try { changes = JSON.parse(text); } catch { /* said below */ }
  state.own = read("own", changes && {changes, from: from === undefined || Number(from) >= view.plans ? null : Number(from)}, "the fields of a plan as JSON");
  if (state.own) state.chosen = "own";
  state.wrong = wrong.length ? `The link says ${wrong.join("; ")}. The answer is without it.` : "";
}
function csv() {
  const list = entries(), plan = [...DEGREES.map(([name]) => name), "virtual_stages", ...Object.keys(view.columns)].filter((name, place, all) => all.indexOf(name) === place);
  const head = ["rank", ...plan, "step_time_s", ...Object.keys(view.time).map((part) => `${part}_s`), "peak_memory_bytes", ...Object.keys(view.memory).map((part) => `${part}_bytes`), "fits"];
  const cell = (value) => { const words = value === null || value === undefined ? "" : Array.isArray(value) ? value.join("-") : String(value); return /[",\n]/.test(words) ? `"${words.replaceAll('"', '""')}"` : words; };
  const lines = list.map((one) => [one.place, ...plan.map((name) => wholePlan(one.plan)[name]), one.step_time_s, ...Object.keys(view.time).map((part) => one.parts[part]), one.peak_memory_bytes, ...Object.keys(view.memory).map((part) => one.memory_parts[part]), one.peak_memory_bytes <= found.limit].map(cell).join(","));
  const link = element("a", {href: URL.createObjectURL(new Blob([`${head.join(",")}\n${lines.join("\n")}\n`], {type: "text/csv"})), download: "plans.csv"});
  link.click();
  URL.revokeObjectURL(link.href);
}
// Draw, once Plotly is there: pages of a site load it after the answer stands.
let loading = null;
function plotted(draw) {
  if (window.Plotly) return draw();
  loading ??= new Promise((done) => { const load = element("script", {src: $("plotly").dataset.src}); load.onload = done; document.body.append(load); });
  loading.then(draw);
}
// How sure the ranking is, once the answer stands: a site's questions weren't drawn beforehand.
async function standing() {
  if (window.wouldFit) await window.wouldFit((offers) => { Object.assign(view, {offers, looked: true}); $("offers").replaceChildren(); render(); });
  else {
    view.ranking = await window.standings((await searched({}, [], catalogue.leaders)).ranked);
    worker.postMessage({ranking: view.ranking});  // whose answer to the question as asked stands in that order from then on
    unchanged = await searched({});
    await ask();
  }
}
async function copyLink() {
  keepAddress();
  const button = $("link");
  try { await navigator.clipboard.writeText(location.href); button.textContent = "Copied"; } catch { button.textContent = "It is in the address bar"; }
  setTimeout(() => { button.textContent = "Copy link"; }, 1800);
}
function start() {
  readAddress();
  question(); sliders(); heads(); tabs();
  const mark = () => $("compare").setAttribute("aria-pressed", String(state.comparing));
  $("compare").addEventListener("click", () => { state.comparing = !state.comparing; if (!state.comparing) state.beside = null; mark(); keepAddress(true); if (state.comparing) tab("difference"); render(); });
  mark();
  $("more").addEventListener("click", () => { state.all = !state.all; table(entries()); });
  $("export").addEventListener("click", csv);
  $("link").addEventListener("click", copyLink);
  $("numbers").addEventListener("toggle", numbers);
  $("asked").textContent = view.asked;
  $("glossary").textContent = view.words.glossary;
  $("image").addEventListener("click", () => plotted(() => saveImage($("chart"), `${view.asked}. ${$("reading").textContent}`, look().panel, `costmodel-${state.tab}`)));
  DARK.addEventListener("change", render);
  WIDTH.addEventListener("change", render);
  // Together with the address: "hashchange" comes later, and an answer that ends in between would write its own over it.
  addEventListener("popstate", () => { readAddress(); mark(); tabs(); for (const show of strip.values()) show(); ask(); });
  $("foot").replaceChildren(`costmodel ${view.version}. Every number is worked out in this page, by the same formulas as the library's; nothing is sent. `, ...(view.command ? [element("code", {}, ...view.command.split(" ").flatMap((word) => [element("span", {}, word), " "]))] : []));
  const {evaluate, asked: fields, domains} = costmodel;
  window.costmodel = {evaluate, fields, domains, timeline, search: searched, redraw: null, ready: null};
  window.costmodel.ready = searched({}).then((got) => { unchanged = got; return ask(); });
  window.costmodel.ready.then(ahead);
  if (window.standings) window.costmodel.standing = window.costmodel.ready.then(standing);
}
start();
