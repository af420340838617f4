// The search: every plan of the page under the values of the sliders. `costmodel` is the model, made by the text before this.
"use strict";
let rows = null, model = costmodel, view = null;

onmessage = ({data}) => {
  if (data.view) { view = data.view; rows = null; return; }
  if (data.ranking) { view.ranking = data.ranking; return; }
  const start = performance.now();
  const found = search(data.changes, data.top, data.keep);
  postMessage({id: data.id, ...found, milliseconds: performance.now() - start}, [found.times.buffer, found.bytes.buffer]);
};

function fieldsOf(row) {
  const fields = {};
  for (const [name, {values, index}] of Object.entries(view.columns)) fields[name] = values[index ? index[row] : 0];
  return fields;
}

// Leading plans without twins: those that differ from one before in something that changes neither time nor memory.
function apart(inside, times, bytes, top) {
  const found = [], close = (one, other) => Math.abs(one - other) <= view.twin * other;
  const differences = (one, other) => Object.values(view.columns).filter(({index}) => index && index[one] !== index[other]).length;
  for (const row of inside) {
    if (found.length === top) break;
    if (!found.some((one) => close(times[row], times[one]) && close(bytes[row], bytes[one]) && differences(row, one) <= 1)) found.push(row);
  }
  return found;
}

// The settings and the split of every plan are worked out once for what is asked of plans and of the model; all else once a search.
const ofPlans = (name) => !name.includes(".") || name.startsWith("model.");
function prepare(changes) {
  const key = JSON.stringify(Object.entries(changes).filter(([name]) => ofPlans(name)));
  if (rows?.key === key) return rows;
  const own = model.modelOf({...model.asked, ...changes});
  const plans = model.prepared(Array.from({length: view.plans}, (_, row) => ({...fieldsOf(row), ...changes})), own);
  return rows = {key, own, plans};
}

function search(changes, top, keep) {
  const {own, plans} = prepare(changes), count = view.plans, {times, bytes} = model.steps(plans, own, {...model.asked, ...changes});
  const limit = view.margin * (changes["device.memory"] ?? model.asked["device.memory"]);
  const inside = [...times.keys()].filter((row) => bytes[row] <= limit);
  inside.sort((a, b) => times[a] - times[b]);
  const asked = Object.keys(changes).length === 0, ranked = asked && view.ranking.length ? view.ranking.map(({row}) => row) : apart(inside, times, bytes, top);
  let miss = -1;
  const fastest = inside.length ? times[inside[0]] : Infinity;
  for (let row = 0; row < count; row++)
    if (bytes[row] > limit && times[row] < fastest && bytes[row] <= 1.5 * limit && (miss < 0 || times[row] < times[miss])) miss = row;
  if (!inside.length) for (let row = 0; row < count; row++) if (miss < 0 || bytes[row] < bytes[miss]) miss = row;
  const detail = (row) => ({row, plan: fieldsOf(row), ...model.evaluate({...fieldsOf(row), ...changes})});
  return {
    ranked: ranked.slice(0, top).map(detail), miss: miss < 0 ? null : detail(miss), kept: keep.map(detail),
    fitting: asked && view.fitting !== null ? view.fitting : inside.length, limit, times, bytes,
  };
}
