// The model in a browser: fields become choices by the codes of DATA, and the library's printed formulas do the rest.
// The same text runs in the page and in its worker; `formulas` holds the printed functions, by name.
function makeModel(DATA, formulas) {
  "use strict";
  const {asked, domains, texts, parameters, parts, given} = DATA, {restrictions, counted, open} = given;

  const key = (value) => Array.isArray(value) ? value.join("-") : value;
  const shown = (value) => value === null ? "None" : typeof value === "string" ? `'${value}'`
    : typeof value === "boolean" ? (value ? "True" : "False") : Array.isArray(value) ? `(${value.map(shown).join(", ")}${value.length === 1 ? "," : ""})` : String(value);
  function filled(template, fields) {
    return template.replace(/\{([^{}]+)\}/g, (_, made) => {
      if (made in fields) return shown(fields[made]);
      const [first, ...others] = made.split(/(?=[*/])/);
      let value = fields[first];
      for (const other of others) value = other[0] === "*" ? value * fields[other.slice(1)] : value / fields[other.slice(1)];
      return String(Math.floor(value));
    });
  }
  function allowed(name, value) {
    const domain = domains[name];
    if (value === null) return domain.empty;
    if (domain.choices.some((one) => key(one) === key(value))) return true;
    if (!domain.bounds || typeof value !== "number" || !Number.isFinite(value)) return false;
    return value >= domain.bounds[0] && value <= domain.bounds[1] && (!domain.whole || Number.isInteger(value));
  }
  // Whether values break a restriction, as `costmodel.description.fields.Restriction` has it.
  function breaks({field, allowed, beside, values, above, numbers}, fields) {
    const value = fields[field];
    if (allowed.includes(value) || (numbers && typeof value === "number")) return false;
    if (!beside) return true;
    return above === null ? values.includes(fields[beside]) : (fields[beside] ?? 0) > above;
  }
  function refused(rows, fields) {
    const row = rows.find((one) => breaks(one, fields));
    return row ? {error: filled(row.text, fields), reason: row.reason || "refused"} : null;
  }

  // Choices as the formulas take them, and values as people do.
  const codes = Object.fromEntries(Object.entries(given.codes).map(([name, pairs]) => [name, new Map(pairs.map(([value, code]) => [key(value), code]))]));
  const values = Object.fromEntries(Object.entries(given.codes).map(([name, pairs]) => [name, new Map(pairs.map(([value, code]) => [code, value]))]));
  function coded(name, value) {
    if (!(name in codes)) return value ?? open;
    if (name in counted && typeof value === "number")  // of the numbers of its words it is one
      return Object.fromEntries(Object.keys(given.codes[name][0][1]).map((part) => [part, part === counted[name] ? value : 0]));
    return codes[name].get(key(value));
  }
  function encoded(fields) {
    const made = {};
    for (const name of given.choices) made[name] = coded(name, fields[name]);
    return made;
  }
  const defaultsOf = ({synchronisation, dtype}) => ({...given.defaults, ...given.of_dtype[dtype], server: given.servers[synchronisation]});
  // Fields where those that were left open are the framework's and the device's, and those that it overrules its own.
  function settled(fields, choices) {
    const made = {...fields};
    for (const name of given.choices)
      if ((fields[name] === null && choices[name] !== open && typeof choices[name] === "number") || given.overruled.includes(name))
        made[name] = name in values ? values[name].get(choices[name]) : choices[name];
    return made;
  }
  // What of the formulas' arguments is a plan's own, beside the fields as they are settled.
  function planned(asked, model) {
    const choices = formulas.resolved(encoded(asked), defaultsOf(asked), given.usual_dtype, given.transposed), fields = settled(asked, choices);
    return {fields, settings: formulas.settings_of_model(model, given.parameters, choices, defaultsOf(fields)), plan: formulas.plan_numbers(choices, model.layers)};
  }
  function modelOf(fields) {
    const load = fields["model.expert_imbalance"];
    return load === undefined ? given.model : {...given.model, experts: {...given.model.experts, load}};
  }
  function deviceOf(fields) {
    const of = given.figures[fields.dtype], figures = {...of.figures};
    for (const name of given.device) figures[name] = fields[`device.${name}`];
    for (const field of ["flop_rate", "gemm_efficiency"])
      if (fields[`device.${field}`] !== null) for (const name of of[field]) figures[name] = fields[`device.${field}`];
    return formulas.device_numbers(figures);
  }
  function networkOf(fields) {
    const levels = given.levels.map(({figures, fields: {bandwidth, latency}}) => formulas.level_numbers({...figures, bandwidth: fields[bandwidth], latency: fields[latency]}));
    return Object.fromEntries(given.network.map((name, place) => [name, levels[Math.min(place, levels.length - 1)]]));
  }

  const call = (name, made) => formulas[name](...parameters[name].map((parameter) => made[parameter]));
  const known = (made) => call("step", made);
  // Factor on every time by which own runs, and those of plans alike, took longer than the constants say.
  const stretch = (made) => Math.exp(DATA.own_runs.reduce((sum, {discrepancy, ...other}) => sum + discrepancy * call("correlation", {...made, ...other}), DATA.own_factor));
  function step(made) {
    const found = known(made);
    if (!DATA.own_runs.length && !DATA.own_factor) return found;
    const factor = stretch(made);
    for (const time of DATA.times) found[time] *= factor;
    return found;
  }

  // Of the fullest GPU: of its fullest moment, or while the model is loaded where more than its own part comes to it.
  const needed = (found, made) => made.settings.loading.kind > 0 && made.plan.shard_weights > 0 ? Math.max(found.memory.total, call("device_bytes", made)) : found.memory.total;

  // What is asked, with changes: {fields}, or {error} in one line.
  function asking(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (!(name in asked)) return {error: `field=${shown(name)}: expected one of ${Object.keys(asked).join(", ")}`, reason: "field"};
      if (!allowed(name, value)) return {error: `${name}=${shown(value)}: expected ${domains[name].wish}`, reason: name};
    }
    const fields = {...asked, ...changes}, {field, by, text} = DATA.follows, broken = refused(restrictions.plan, fields);
    if (broken) return broken;
    if (fields[field] === null) {
      fields[field] = by.reduce((left, name) => left / fields[name], fields[DATA.gpus]);
      if (!Number.isInteger(fields[field])) return {error: filled(text, fields), reason: "world_size"};
    }
    return refused(restrictions.model, fields) ?? {fields};
  }
  // The first rule that a settled plan breaks: its own, the framework's, those of legality, of the device.
  function broken(made, fields) {
    const found = refused(restrictions.plan, fields) ?? refused(restrictions.framework, fields);
    if (found) return found;
    const violations = call("violations", made);
    for (const reason in violations) if (violations[reason]) return {error: filled(texts[reason], fields), reason};
    const error = given.figures[fields.dtype].refused;
    return error ? {error, reason: "dtype"} : null;
  }
  // Of many plans what their settings and their split are, worked out once for all that is asked of cluster and device.
  function prepared(plans, own) {
    return plans.map((changes) => { const {fields, settings, plan} = planned({...asked, ...changes}, own); return {settings, plan, dtype: fields.dtype}; });
  }
  // Their times and memory, as arrays.
  function steps(plans, own, fields) {
    const network = networkOf(fields), devices = {}, times = new Float64Array(plans.length), bytes = new Float64Array(plans.length);
    plans.forEach(({settings, plan, dtype}, row) => {
      const made = {model: own, settings, plan, network, software: given.software, device: devices[dtype] ??= deviceOf({...fields, dtype})}, found = step(made);
      times[row] = found.total;
      bytes[row] = needed(found, made);
    });
    return {times, bytes};
  }
  function answer(made, {price}) {
    const found = step(made), times = {}, hours = made[DATA.gpus] * found.total / 3600;
    for (const part of parts) times[part] = found[part];
    return {
      step_time_s: found.total, peak_memory_bytes: needed(found, made), parts: times, memory_parts: found.memory,
      model_flop: found.model_flop, gpu_hours: hours, cost: hours * price,
    };
  }
  // The formulas' arguments of what is asked, or {error} in one line.
  function checked(changes) {
    const {fields: open, ...wrong} = asking(changes);
    if (!open) return wrong;
    const model = modelOf(open), {fields, settings, plan} = planned(open, model);
    const made = {model, settings, plan, gpus: fields[DATA.gpus]};
    return broken(made, fields) ?? {made: {...made, network: networkOf(fields), software: given.software, device: deviceOf(fields)}, fields};
  }
  function evaluate(changes = {}) {
    const {made, fields, ...refused} = checked(changes);
    return made ? answer(made, fields) : refused;
  }
  return {asked, domains, evaluate, checked, planned, prepared, steps, modelOf, known, stretch, peak: DATA.peak};
}
