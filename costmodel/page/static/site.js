// The site's page: a question out of the address, its data loaded, its plans tried, and then the page that every answer has.
"use strict";
(() => {
const asking = new URLSearchParams(location.search), site = (id) => document.getElementById(id);
const made = (tag, attributes = {}, ...children) => {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) one[name] = value;
  one.append(...children);
  return one;
};

// what is asked: of the address, else the first question that is offered
const [MODEL, CLUSTER, GPUS] = catalogue.presets.find(([model, cluster]) => catalogue.models.includes(model) && catalogue.clusters.includes(cluster)) ?? [catalogue.models[0], catalogue.clusters[0], null];
const plain = !asking.has("model") && !asking.has("cluster");
const chosenName = (key, usual) => asking.get(key) ?? usual;
const picked = {model: chosenName("model", MODEL), cluster: chosenName("cluster", CLUSTER), framework: chosenName("framework", catalogue.frameworks[0])};
const complaints = window.complaints = [], known = [...Object.keys(picked), "gpus", "batch", "length"];
// A whole number of the address, where it is one that the field may be; else it is said what is wrong, and null.
const wholeOf = (name, {bounds: [least, most], wish}) => {
  const value = Number(asking.get(name) || NaN);
  if (Number.isInteger(value) && value >= least && value <= most) return value;
  if (asking.has(name)) complaints.push(`${name}=${asking.get(name).slice(0, 40)}: expected ${wish}`);
  return null;
};
for (const name of asking.keys()) if (!known.includes(name)) complaints.push(`${name.slice(0, 40)}: expected one of ${known.join(", ")}`);
const go = (changes) => {
  const next = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries({...picked, ...changes})) if (value === null || value === "") next.delete(name); else next.set(name, value);
  const tab = new URLSearchParams(location.hash.slice(1)).get("tab");  // all else that stands there is about this question's plans
  location.href = `?${next}${tab ? `#tab=${tab}` : ""}`;
};

function load(kind, name) {
  const key = `${kind} ${name}`;
  return new Promise((done, failed) => {
    const script = made("script", {src: `${kind}s/${encodeURIComponent(name)}.js`});
    script.onload = () => done(loaded[key]);
    script.onerror = () => failed(new Error(`there is no ${kind} called ${name} here`));
    document.body.append(script);
  });
}
const over = (base, other) => {
  const found = {...base};
  for (const [name, value] of Object.entries(other))
    found[name] = value && typeof value === "object" && !Array.isArray(value) && found[name] && typeof found[name] === "object" && !["asked", "figures"].includes(name) ? over(found[name], value) : value;
  return found;
};
const gpusOf = (count) => count === 1 ? "1 GPU" : `${count.toLocaleString("en")} GPUs`;
const divisors = (number, most) => Array.from({length: Math.min(number, most)}, (_, place) => place + 1).filter((one) => number % one === 0);

// The tables of a question, as `costmodel.page.data.tables` makes them.
function tablesOf(framework, cluster, model, sizes) {
  const {tables} = framework;
  return {
    ...tables, texts: model.texts,
    asked: {...tables.asked, ...model.asked, ...sizes}, domains: {...tables.domains, ...model.domains},
    given: {...tables.given, model: model.model, parameters: model.parameters, restrictions: {...tables.given.restrictions, model: model.restrictions}},
  };
}

// Plans that are tried: every split of the GPUs with the micro-batches, chunks, experts, stages of ZeRO and kinds of recomputation
// that the library's search tries; what is legal the printed rules say.
function* tried({space}, model, {gpus, global_batch, seq_len}, recompute) {
  const has = (dimension) => space.dimensions.includes(dimension), upTo = (dimension, most) => has(dimension) ? divisors(gpus, most) : [1];
  for (const t of upTo("tensor", model.heads)) for (const c of upTo("context", Math.max(1, Math.floor(seq_len / space.context_tokens))))
    for (const p of upTo("pipeline", model.layers)) {
      const d = gpus / (t * c * p);
      if (!Number.isInteger(d)) continue;
      const ranks = c * d, share = Math.floor(global_batch / d), sizes = [];
      for (let size = 1; size <= space.micro_batch; size *= 2) if (share >= size && share % size === 0) sizes.push(size);
      const chunks = p === 1 ? [1] : divisors(Math.ceil(model.layers / p), 8);
      const experts = has("expert") ? model.experts.filter((one) => one <= t * ranks && (t * ranks) % one === 0) : [1];
      const zero = ranks === 1 && model.experts.length === 1 ? [Math.min(...space.zero_stages)] : space.zero_stages;
      for (const micro_batch of sizes.length ? sizes : [1]) for (const virtual_stages of chunks) for (const expert_parallel of experts) for (const zero_stage of zero) for (const one of recompute)
        yield {
          tensor_parallel: t, context_parallel: c, pipeline_parallel: p, data_parallel: d, expert_parallel, micro_batch, virtual_stages, zero_stage, recompute: one,
          schedule: p === 1 ? "1f1b" : space.schedules[Number(virtual_stages > 1)],
        };
    }
}

// What a question would fit with, where nothing does: changes that the library's offers try one at a time, shorter sequences, more
// GPUs; the one of the least GPU time a token first.
async function offersOf(costmodel, framework, model, sizes, limit, recompute, tell) {
  const found = [], cost = ({step_time_s, gpus, tokens}) => step_time_s * gpus / tokens;
  let since = performance.now();
  const best = async (words, changes, asked) => {
    let first = null;
    for (const plan of tried(framework, model, asked, recompute)) {
      since = await rested(since);
      const one = costmodel.evaluate({...plan, ...changes});
      if (!one.error && one.peak_memory_bytes <= limit && !(first?.step_time_s <= one.step_time_s)) first = {...one, plan: {...plan, ...changes}};
    }
    if (!first) return false;
    found.push({words, gpus: asked.gpus, tokens: asked.global_batch * asked.seq_len, ...first});
    tell(found.sort((one, other) => cost(one) - cost(other)).map((one) => [
      one.words, one.gpus.toLocaleString("en"), seconds(one.step_time_s), Math.round(1 / cost(one)).toLocaleString("en"),
      `${gib(one.peak_memory_bytes)} of ${gib(limit)} GiB`, planLabel({...costmodel.asked, ...one.plan}),
    ]));
    return true;
  };
  for (const {changes, words} of catalogue.less) await best(words, changes, sizes);
  for (let seq_len = Math.floor(sizes.seq_len / 2); seq_len >= catalogue.shortest; seq_len = Math.floor(seq_len / 2))
    if (await best(`sequences of ${seq_len.toLocaleString("en")}`, {seq_len}, {...sizes, seq_len})) break;
  for (let gpus = 2 * sizes.gpus; gpus <= catalogue.times * sizes.gpus; gpus *= 2)
    if (await best(`${gpus.toLocaleString("en")} GPUs`, {gpus}, {...sizes, gpus})) break;
  if (!found.length) tell([]);
}

// Legal plans that the page holds: those that fit and are fastest, and of the others the fastest.
function held(costmodel, framework, model, sizes, limit, recompute) {
  const inside = [], outside = [];
  let legal = 0;
  for (const plan of tried(framework, model, sizes, recompute)) {
    const found = costmodel.evaluate(plan);
    if (found.error) continue;
    legal += 1;
    (found.peak_memory_bytes <= limit ? inside : outside).push({plan, time: found.step_time_s});
  }
  for (const list of [inside, outside]) list.sort((one, other) => one.time - other.time);
  const most = framework.space.most, kept = inside.slice(0, most);
  return {fits: inside.length > 0, plans: [...kept, ...outside.slice(0, Math.max(most - kept.length, most / 4))].slice(0, most).map(({plan}) => plan), legal};
}
function columnsOf(plans, asked) {
  const columns = {};
  for (const name of Object.keys(plans[0])) {
    const values = [...new Set(plans.map((plan) => plan[name]))], place = new Map(values.map((value, at) => [value, at]));
    if (values.length > 1) columns[name] = {values, index: plans.map((plan) => place.get(plan[name]))};
    else if (values[0] !== asked[name]) columns[name] = {values, index: null};
  }
  return columns;
}

// Whoever drags while the page works on doesn't wait for it.
async function rested(since) {
  if (performance.now() - since < 12) return since;
  await new Promise((done) => setTimeout(done));
  return performance.now();
}
// How sure a plan's step is: by how its logarithm follows each constant in doubt, as `costmodel.evaluation.error_model` has it.
const STEP = 1e-6;
function slopesOf(costmodel, {doubts}, plan) {
  const {made} = costmodel.checked(plan), first = Math.log(costmodel.known(made).total);
  const slope = (changes) => (Math.log(costmodel.known({...made, ...changes}).total) - first) / STEP;
  const more = (record, path) => { const [head, ...rest] = path; return {...record, [head]: rest.length ? more(record[head], rest) : record[head] * (1 + STEP)}; };
  return {
    fields: doubts.fields.map((field) => field in made.device ? slope({device: more(made.device, [field])}) : slope({software: more(made.software, pathOf(made.software, field))})),
    device: doubts.device.map(({numbers, error}) => error * slope({device: numbers.reduce((device, name) => more(device, [name]), made.device)})),
  };
}
// What the errors of two plans' logarithms have in common.
function covariance({doubts}, one, other) {
  let found = 0;
  one.fields.forEach((first, row) => other.fields.forEach((second, column) => { found += first * second * doubts.matrix[row][column]; }));
  one.device.forEach((first, place) => { found += first * other.device[place]; });
  return found;
}
const deviation = (framework, slopes) => Math.sqrt(Math.max(covariance(framework, slopes, slopes), 0));
// Normal draws, the same at every visit, each with its mirror image.
function draws(count) {
  let seed = 20;
  const uniform = () => { seed = (seed + 0x6d2b79f5) | 0; let t = Math.imul(seed ^ (seed >>> 15), 1 | seed); t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t; return (((t ^ (t >>> 14)) >>> 0) + 0.5) / 4294967296; };
  const half = Float64Array.from({length: count / 2}, () => Math.sqrt(-2 * Math.log(uniform())) * Math.cos(2 * Math.PI * uniform()));
  return Float64Array.from({length: count}, (_, place) => place < count / 2 ? half[place] : -half[place - count / 2]);
}
// How simple a plan is, the smaller the simpler, as `costmodel.evaluation.simplicity` has it.
function simplicityOf(costmodel, facts, spread, {plan, peak_memory_bytes}) {
  const whole = {...costmodel.asked, ...plan}, {tensor_stride: stride, tensor} = costmodel.checked(plan).made.plan;
  const spans = tensor > 1 && facts.node % (stride * tensor) !== 0, split = catalogue.dimensions.filter((field) => whole[field] > 1).length;
  return [Number(spans), split, spread.margins.filter((margin) => peak_memory_bytes > margin * costmodel.asked["device.memory"]).length];
}
const before = (one, other) => { const place = one.findIndex((value, at) => value !== other[at]); return place >= 0 && one[place] < other[place]; };
// The simplest of those that can't be told from the fastest, which stands first: of each kind the fastest is asked.
function simplest(costmodel, framework, facts, spread, leaders, slopes) {
  const keys = leaders.map((one) => simplicityOf(costmodel, facts, spread, one)), kinds = keys.map(([spans, split]) => 2 * split + spans), first = leaders[0].step_time_s, own = (row) => covariance(framework, slopes[row], slopes[row]);
  const tied = (row) => Math.log(leaders[row].step_time_s / first) <= catalogue.near * Math.sqrt(Math.max(own(row) + own(0) - 2 * covariance(framework, slopes[0], slopes[row]), 0) + 2 * spread.within ** 2);
  return leaders.reduce((best, {step_time_s}, row) => kinds.indexOf(kinds[row]) === row && step_time_s <= catalogue.close * first && before(keys[row], keys[best]) && tied(row) ? row : best, 0);
}
// Of leading plans, the simplest of those tied with the fastest before them: which is really the fastest, as `costmodel.evaluation.ranking`
// draws it.
async function standingsOf(costmodel, framework, facts, spread, leaders) {
  let slopes = [];
  let since = performance.now();
  for (const {plan} of leaders) {
    slopes.push(slopesOf(costmodel, framework, plan));
    since = await rested(since);
  }
  const chosen = leaders.length ? simplest(costmodel, framework, facts, spread, leaders, slopes) : 0, led = (list) => [list[chosen], ...list.filter((_, row) => row !== chosen)];
  if (leaders.length) [leaders, slopes] = [led(leaders), led(slopes)];
  const many = leaders.length, count = catalogue.draws;
  const lower = leaders.map(() => new Float64Array(many));
  for (let row = 0; row < many; row++) for (let column = 0; column <= row; column++) {
    let left = covariance(framework, slopes[row], slopes[column]) + (row === column ? spread.within ** 2 : 0);
    for (let place = 0; place < column; place++) left -= lower[row][place] * lower[column][place];
    lower[row][column] = row === column ? Math.sqrt(Math.max(left, 1e-18)) : left / lower[column][column];
  }
  const normal = draws(count * many), truth = leaders.map(({step_time_s}) => new Float64Array(count).fill(Math.log(step_time_s)));
  for (let row = 0; row < many; row++) for (let column = 0; column <= row; column++) {
    const factor = lower[row][column], offset = column * (count / 2);
    for (let draw = 0; draw < count / 2; draw++) { const move = factor * normal[offset + draw]; truth[row][draw] += move; truth[row][draw + count / 2] -= move; }
  }
  const best = Float64Array.from({length: count}, (_, draw) => Math.min(...truth.map((times) => times[draw])));
  const share = (holds) => { let found = 0; for (let draw = 0; draw < count; draw++) found += holds(draw); return found / count; };
  return leaders.map(({row}, place) => {
    const beats = place ? share((draw) => truth[place][draw] < truth[0][draw]) : 0.5, sure = deviation(framework, slopes[place]);
    return {row, fastest: share((draw) => truth[place][draw] <= best[draw]), either: "", tied: place > 0 && beats >= catalogue.tie, error: between(spread.halves, catalogue.doubts, sure), unknown: ""};
  });
}
const pathOf = (record, name) => Object.entries(record).flatMap(([key, value]) => value && typeof value === "object" ? (name.startsWith(`${key}_`) && pathOf(value, name.slice(key.length + 1)).length ? [key, ...pathOf(value, name.slice(key.length + 1))] : []) : key === name ? [key] : []);
function between(values, ends, at) {
  const place = Math.min(Math.max(ends.findIndex((end) => end >= at), 1), ends.length - 1), share = (at - ends[place - 1]) / (ends[place] - ends[place - 1]);
  return values[place - 1] + Math.min(Math.max(share, 0), 1) * (values[place] - values[place - 1]);
}

// the form
function chooser(facts, sizes) {
  const pick = (key, names) => {
    const list = made("select", {id: `site-${key}`, onchange: (event) => go({[key]: event.target.value, ...(key === "cluster" ? {gpus: null, batch: null} : {})})}, ...names.map((name) => made("option", {value: name, selected: name === picked[key], textContent: name})));
    return made("label", {textContent: key}, list);
  };
  const number = (key, words, value) => made("label", {textContent: words}, made("input", {type: "number", min: 1, step: 1, id: `site-${key}`, value: value ?? "", onchange: (event) => go({[key]: event.target.value})}));
  const offered = catalogue.presets.filter(([model, cluster]) => catalogue.models.includes(model) && catalogue.clusters.includes(cluster));
  site("ask").append(made("details", {open: !matchMedia("(max-width: 860px)").matches || plain}, made("summary", {textContent: "Question"}),
    pick("model", catalogue.models), pick("cluster", catalogue.clusters), pick("framework", catalogue.frameworks),
    number("gpus", "GPUs", sizes?.gpus), number("batch", "sequences a step", sizes?.global_batch), number("length", "tokens of a sequence", sizes?.seq_len),
    made("p", {className: "note"}, "Others: ", ...offered.flatMap(([model, cluster, gpus], place) => [place ? ", " : "", made("a", {href: `?model=${model}&cluster=${cluster}&gpus=${gpus}`, textContent: `${model} on ${gpus} GPUs of ${cluster}`})])),
    ...(catalogue.beside.length ? [made("p", {className: "note"}, "Beside it: ", ...catalogue.beside.flatMap(([title, address], place) => [place ? ", " : "", made("a", {href: address, textContent: title})]))] : [])));
}
function refuse(line) {
  site("wrong").textContent = line;
  site("answer").textContent = "No answer to this question";
}

async function answered() {
  const [base, {facts, every, frameworks}, model] = await Promise.all([load("framework", picked.framework), load("cluster", picked.cluster), load("model", picked.model)]);
  const nodes = 2 ** Math.ceil(Math.log2(Math.max(1, model.states / (facts.node * facts.room))));
  const {domains} = base.tables, gpus = wholeOf("gpus", domains.gpus) ?? (plain ? GPUS : null) ?? facts.node * nodes;
  const sizes = {gpus, global_batch: wholeOf("batch", domains.global_batch) ?? catalogue.sequences * gpus, seq_len: wholeOf("length", domains.seq_len) ?? Math.min(catalogue.length, model.longest || catalogue.length)};
  chooser(facts, sizes);
  if (!frameworks[picked.framework]) return refuse(`${picked.framework} doesn't run on ${picked.cluster}`);
  const framework = over(over(base, every), frameworks[picked.framework]), data = tablesOf(framework, facts, model, sizes), recompute = model.recompute[picked.framework];
  const spread = framework.spreads[model.kind], limit = spread.margin * data.asked["device.memory"];
  document.body.append(made("script", {id: "model", textContent: `"use strict";\nconst costmodel = modelOf(${JSON.stringify(data)});\n`}));
  const {plans, legal, fits} = held(costmodel, framework, model, sizes, limit, recompute);
  if (!plans.length) {
    const why = [...tried(framework, model, sizes, recompute)].slice(0, 1).map((plan) => costmodel.evaluate(plan).error);
    return refuse(`No plan is legal: ${why[0] ?? "none can be tried"}`);
  }
  const first = deviation(framework, slopesOf(costmodel, framework, plans[0]));
  window.wouldFit = fits ? null : (tell) => offersOf(costmodel, framework, model, sizes, limit, recompute, tell);
  window.standings = (ranked) => standingsOf(costmodel, framework, facts, spread, ranked);
  site("view").textContent = JSON.stringify({
    ...JSON.parse(site("view").textContent), command: `costmodel search ${picked.model} --cluster ${picked.cluster} --gpus ${gpus} --global-batch ${sizes.global_batch} --seq-len ${sizes.seq_len} --framework ${picked.framework}`,
    asked: `${picked.model} on ${gpusOf(gpus)} of ${picked.cluster}, ${picked.framework}: ${counted(sizes.global_batch)} sequences of ${counted(sizes.seq_len)} tokens a step`,
    facts: {
      Model: {parameters: model.billions, layers: String(model.layers)}, Cluster: {GPU: facts.title, "GPUs of a node": String(facts.node), framework: picked.framework},
    },
    columns: columnsOf(plans, data.asked), plans: plans.length, legal, fitting: null, ranking: [], offers: [], none: fits ? "" : `None of ${legal.toLocaleString("en")} legal plans fits`,
    margin: spread.margin, error: between(spread.halves, catalogue.doubts, first), shift: spread.shift, runs: spread.runs, calibrated: spread.calibrated,
    utilisation: 1 / (gpus * data.peak), price: catalogue.price, gpus, tokens: sizes.global_batch * sizes.seq_len,
    sliders: [...framework.sliders.filter(({field}) => field !== "price"), ...model.sliders, ...framework.sliders.filter(({field}) => field === "price")],
    titles: {time: `Step time of ${picked.model} on ${gpusOf(gpus)} of ${picked.cluster}`, frontier: `${legal.toLocaleString("en")} legal plans of ${picked.model} on ${gpusOf(gpus)} of ${picked.cluster}`},
  });
  document.title = `${picked.model} on ${gpusOf(gpus)} of ${picked.cluster}: what if`;
  document.body.append(made("script", {src: "shared/page.js"}));
}
answered().catch((error) => { if (!site("site-model")) chooser(); refuse(error.message); });
})();
