// The model in a browser: fields become the formulas' arguments by the tables of DATA, and the printed formulas do the rest.
// The same text runs in the page and in its worker; `formulas` holds the printed functions, by name.
function makeModel(DATA, formulas) {
  "use strict";
  const {asked, domains, rules, refusals, texts, constants, parameters, parts} = DATA;
  const EMPTY = "-", LEAST = "=", ANY = "*";

  // The class of a value that the tables tell apart.
  function token(name, value) {
    const domain = domains[name];
    if (value === null) return EMPTY;
    if (domain.order) return value.join("-");
    if (domain.bounds && !domain.choices.length) return value === domain.bounds[0] ? LEAST : ANY;
    if (typeof value === "number" && domain.most) return String(Math.min(value, domain.most));
    return String(value);
  }
  const shown = (value) => value === null ? "None" : typeof value === "string" ? `'${value}'`
    : typeof value === "boolean" ? (value ? "True" : "False") : Array.isArray(value) ? `(${value.map(shown).join(", ")})` : String(value);
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
    if (domain.order) return Array.isArray(value) && domain.choices.some((one) => one.join("-") === value.join("-"));
    if (domain.choices.includes(value)) return true;
    if (!domain.bounds || typeof value !== "number" || !Number.isFinite(value)) return false;
    return value >= domain.bounds[0] && value <= domain.bounds[1] && (!domain.whole || Number.isInteger(value));
  }
  function refusal(fields) {
    for (const {tokens, message} of refusals)
      if (Object.entries(tokens).every(([name, one]) => token(name, fields[name]) === one)) return filled(message, fields);
    return null;
  }
  function nest(into, path, value) {
    const steps = path.split("."), last = steps.pop();
    let here = into;
    for (const step of steps) here = here[step] ??= {};
    here[last] = value;
  }
  function copied(value) {
    if (typeof value !== "object") return value;
    const made = {};
    for (const name in value) made[name] = copied(value[name]);
    return made;
  }
  const template = {};
  for (const [path, value] of Object.entries(constants)) nest(template, path, value);
  for (const {path} of rules) nest(template, path, 0);
  const compiled = rules.map(({path, by, terms}) => {
    const steps = path.split("."), last = steps.pop();
    const fields = new Set(by);
    for (const term of Object.values(terms)) for (let i = 1; i < term.length; i += 2) fields.add(term[i]);
    return {path, steps, last, by, terms, fields};
  });

  function valueOf(rule, fields) {
    const term = rule.terms[rule.by.map((name) => token(name, fields[name])).join("|")];
    if (term === undefined) throw new Error(`no ${rule.path} for ${rule.by.map((name) => `${name}=${shown(fields[name])}`).join(", ")}`);
    let value = term[0];
    for (let i = 1; i < term.length; i += 2) value *= fields[term[i]] ** term[i + 1];
    return value;
  }
  // The formulas' arguments, nested as they take them.
  function convert(fields) {
    const made = copied(template);
    for (const rule of compiled) rule.steps.reduce((here, step) => here[step], made)[rule.last] = valueOf(rule, fields);
    return made;
  }
  const call = (name, made) => formulas[name](...parameters[name].map((parameter) => made[parameter]));
  const known = (made) => call(DATA.steps.names[made[DATA.steps.by]], made);
  const ownRuns = DATA.own_runs.map(({discrepancy, of}) => {
    const other = {};
    for (const [path, value] of Object.entries(of)) nest(other, path, value);
    return {discrepancy, other};
  });
  // Factor on every time by which own runs, and those of plans alike, took longer than the constants say.
  const stretch = (made) => Math.exp(ownRuns.reduce((sum, {discrepancy, other}) => sum + discrepancy * call("correlation", {...made, ...other}), DATA.own_factor));
  function step(made) {
    const found = known(made);
    if (!ownRuns.length && !DATA.own_factor) return found;
    const factor = stretch(made);
    for (const time of DATA.times) found[time] *= factor;
    return found;
  }

  // What is asked, with changes: {fields}, or {error} in one line.
  function asking(changes) {
    for (const [name, value] of Object.entries(changes)) {
      if (!(name in asked)) return {error: `field=${shown(name)}: expected one of ${Object.keys(asked).join(", ")}`, reason: "field"};
      if (!allowed(name, value)) return {error: `${name}=${shown(value)}: expected ${domains[name].wish}`, reason: name};
    }
    const fields = {...asked, ...changes}, {field, by, text} = DATA.follows;
    if (fields[field] === null) {
      fields[field] = by.reduce((left, name) => left / fields[name], fields[DATA.gpus]);
      if (!Number.isInteger(fields[field])) return {error: filled(text, fields), reason: "world_size"};
    }
    const refused = refusal(fields);
    return refused ? {error: refused, reason: "refused"} : {fields};
  }
  function broken(made, fields) {
    const violations = call(DATA.legality, made);
    for (const reason in violations) if (violations[reason]) return {error: filled(texts[reason], fields), reason};
    return null;
  }
  function answer(made, {price}) {
    const found = step(made), times = {}, hours = made[DATA.gpus] * found.total / 3600;
    for (const part of parts) times[part] = found[part];
    return {
      step_time_s: found.total, peak_memory_bytes: found.memory.total, parts: times, memory_parts: found.memory,
      model_flop: found.model_flop, gpu_hours: hours, cost: hours * price,
    };
  }
  // The formulas' arguments of what is asked, or {error} in one line.
  function checked(changes) {
    const {fields, ...refused} = asking(changes);
    if (!fields) return refused;
    const made = convert(fields);
    return broken(made, fields) ?? {made, fields};
  }
  function evaluate(changes = {}) {
    const {made, fields, ...refused} = checked(changes);
    return made ? answer(made, fields) : refused;
  }
  return {asked, domains, evaluate, checked, convert, valueOf, compiled, step, known, stretch, peak: DATA.peak};
}
