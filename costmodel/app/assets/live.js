// What follows a slider at once: the plans on show, by the library's formulas as JavaScript, until the server has searched anew.
(function () {
  "use strict";
  const find = (selector, within) => (within || document).querySelector(selector);
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  let asked = null, given = null, before = null, now = null; // the question, its numbers, its model before and under sliders
  let shown = null, followed = false; // the last answer: its plans, its figures, what is looked at; whether others were drawn over them

  // What is written over the server's answer is taken back before the next: the nodes are React's.
  const written = new Map();
  function put(node, key, value) {
    if (!node) return;
    let kept = written.get(node);
    if (!kept) written.set(node, kept = {});
    const there = held(node, key);
    if (there !== kept[key]?.put) kept[key] = { was: there };
    assign(node, key, value);
    kept[key].put = held(node, key);
  }
  const held = (node, key) => key === "style" ? node.style.backgroundImage : key in node ? node[key] : node.getAttribute(key);
  function assign(node, key, value) {
    if (key === "style") node.style.backgroundImage = value;
    else if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  function restore() {
    for (const [node, kept] of written) for (const [key, { was, put }] of Object.entries(kept)) if (held(node, key) === put) assign(node, key, was);
    written.clear();
  }
  // The server's answer as it stood before sliders were followed, with its charts.
  function back() {
    restore();
    if (followed) for (const [place, figure] of [["#chart", shown.figures[0]], ["#chart-beside", shown.figures[1]]]) {
      if (figure) { const { data, layout } = window.costmodelPage.slim(figure, true); plot(place, data, layout); }
    }
    followed = false;
  }
  const write = (node, text) => put(node, "nodeValue", text);
  const textOf = (node) => node && Array.from(node.childNodes).find((one) => one.nodeType === Node.TEXT_NODE);

  // the numbers of a question
  function learn(question) {
    if (question === asked) return;
    asked = question;
    given = null;
    fetch(`/numbers.json?${question}`).then((got) => got.ok ? got.json() : null).then((numbers) => {
      if (question !== asked || !numbers || !numbers.tables) return;
      given = numbers;
      const { modelOf } = window.costmodelPage;
      before = modelOf(structuredClone(given.tables));
      now = given.tables;
      given.plain = new Map();
      for (const places of Object.values(given.follow)) for (const place of places) given.plain.set(place.join(" "), read(now, place));
      warm();
    });
  }
  // What doesn't move with sliders is worked out while nothing else is to do, by formulas that the browser has compiled by then.
  function warm() {
    const answer = shown;
    if (given && answer) (window.requestIdleCallback ?? setTimeout)(() => { if (given && answer === shown && priced({}) && shown.frontier) drawnPlans(shown.frontier); });
  }
  const read = (tables, place) => place.reduce((part, name) => part[name], tables);
  function quantities(factors) {
    const found = {};
    for (const [slider, names] of Object.entries(given.sliders)) for (const name of names) found[name] = factors[slider] ?? 1;
    return found;
  }
  function scaledModel(factors) {
    for (const [name, places] of Object.entries(given.follow)) for (const place of places) {
      const last = place.length - 1;
      read(now, place.slice(0, last))[place[last]] = given.plain.get(place.join(" ")) * (factors[name] ?? 1);
    }
    return window.costmodelPage.modelOf(now);
  }
  // The plans on show under the sliders' factors, each beside what it was without; null where they can't be followed.
  function priced(factors) {
    if (!given || !shown || !window.costmodelPage) return null;
    const model = scaledModel(quantities(factors)), limit = given.margin * model.asked["device.memory"];
    const found = shown.plans.map(({ plan }) => model.evaluate(plan));
    shown.before ??= shown.plans.map(({ plan }) => before.evaluate(plan));
    if (found.some((one) => one.error)) return null;
    return shown.plans.map(({ plan, error, tried }, place) => ({
      ...found[place], error, tried, limit, plan, name: window.costmodelPage.planLabel({ ...model.asked, ...plan }), before: shown.before[place],
    }));
  }

  // words
  const { round, max, log2 } = Math;
  const three = (value) => { const [head, tail] = Number(value.toPrecision(3)).toString().split("."); return Number(head).toLocaleString("en") + (tail ? `.${tail}` : ""); };
  const times = (factor) => `${Number(factor.toPrecision(3))}×`;
  function sliderText(name, about, factor) {
    if (name === "price") return factor ? factor.toFixed(2) : "not asked";
    if (name === "latency") return times(factor);
    if (name === "efficiency") return `${times(factor)}, ${atTop(about, factor) ? about.top : `${round(100 * factor * about.base)} % of peak`}`;
    if (name === "imbalance") { const load = max(1, about.base * factor); return `${load.toFixed(2)}${load === 1 ? ", even" : ""}`; }
    return `${three(about.base * factor)} ${about.unit}`;
  }

  const atTop = (about, factor) => Boolean(about.top) && factor >= 2 ** about.most * (1 - 1e-5);
  const NEAR = [[0.5, "half the"], [2, "twice the"], [0.25, "a quarter of the"], [4, "four times the"]];
  // Moved sliders in the words of the server.
  function movedText(factors, about) {
    const words = Object.keys(about).filter((name) => name in factors && about[name].shown).map((name) => {
      const factor = factors[name], near = NEAR.find(([value]) => Math.abs(factor / value - 1) < 0.02);
      return `${near ? near[1] : `${Number(factor.toPrecision(3))} times the`} ${about[name].label}${name === "efficiency" && atTop(about[name], factor) ? ` (${about[name].top})` : ""}`;
    }).join(", ");
    return words && words[0].toUpperCase() + words.slice(1);
  }

  function follow(factors, about, price) {
    const rows = priced(factors), chosen = rows?.[Math.min(shown.row, shown.ranked - 1)];
    const moved = movedText(factors, about);
    if (!chosen || !find("#said h1 b")) { back(); differ(moved && `${moved}: …`); return false; } // the server will say
    followed = true;
    say(rows, chosen, moved, price);
    table(rows);
    draw(rows, chosen, factors);
    return true;
  }
  const fits = (one) => one.peak_memory_bytes <= one.limit;
  function say(rows, one, moved, price) {
    const { between, gib, percentage, wholePercent, seconds } = window.costmodelPage, head = find("#said h1");
    const low = Math.exp(given.shift - one.error), high = Math.exp(given.shift + one.error);
    write(textOf(find("b", head)), between(one.step_time_s));
    write(textOf(head), ` a step with ${one.name}${one.tried}: ${wholePercent(given.utilisation * one.model_flop / one.step_time_s)} % MFU, ${gib(one.peak_memory_bytes)} of ${gib(one.limit)} GiB${fits(one) ? "" : ": does not fit"}`);
    put(head, "className", fits(one) ? "" : "bad");
    const sure = textOf(find("#said p"));
    if (sure) write(sure, `${between(one.step_time_s * low, one.step_time_s * high)} with ${sure.nodeValue.split(" with ").slice(1).join(" with ")}`);
    const paid = find("#said p .evidence")?.nextSibling, billions = given.tokens / 1e9;
    if (paid && price) write(paid, ` ${(price * given.gpus * one.step_time_s / 3600 / billions).toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: 2 })} per billion tokens`);
    const beside = rows[shown.beside], line = textOf(find("#said .beside"));
    if (beside && line) write(line, `Beside it ${beside.name}: ${seconds(beside.step_time_s)} a step, ${percentage(beside.step_time_s / one.step_time_s - 1)}.`);
    const then = one.before.step_time_s;
    const lost = fits(one) ? "" : rows.some(fits) ? "; it no longer fits" : "; no plan on show fits any more";
    differ(moved && `${moved}: ${one.name} takes ${seconds(one.step_time_s)}${Math.abs(one.step_time_s / then - 1) < 5e-4 ? " as before" : ` instead of ${seconds(then)} (${percentage(one.step_time_s / then - 1)})`}${lost}`);
  }
  const differ = (words) => put(find("#diff"), "textContent", words);
  function table(rows) {
    const { view, figures, gib, title } = window.costmodelPage, places = all("#table tbody tr").map((row) => Number(row.cells[0].textContent));
    const longest = max(...rows.map((one) => one.step_time_s)), fullest = max(...rows.map((one) => one.limit), ...rows.slice(shown.ranked).map((one) => one.peak_memory_bytes));
    all("#table tbody tr").forEach((row, at) => {
      const one = rows[places[at] ? places[at] - 1 : shown.ranked], cells = row.cells;
      if (!one || cells.length < 8) return;
      bar(cells[2].firstElementChild, view.time, (part) => one.parts[part], longest, (value) => `${figures(value, 3)} s`);
      write(textOf(cells[3]), figures(one.step_time_s, 4));
      write(textOf(cells[4]), round(given.tokens / one.step_time_s / given.gpus).toLocaleString("en"));
      bar(cells[5].firstElementChild, view.memory, (part) => one.memory_parts[part], fullest, (value) => `${figures(value / 2 ** 30, 3)} GiB`, one.limit);
      write(textOf(cells[6]), gib(one.peak_memory_bytes));
      put(row, "className", `${row.className.replace(/ ?off/, "")}${fits(one) ? "" : " off"}`.trim());
    });
    function bar(box, looks, of, whole, words, limit) {
      const stops = [], said = [];
      let end = 0;
      for (const [part, [colour]] of Object.entries(looks)) {
        const value = of(part), begin = end;
        if (!(value > 0)) continue;
        end += 100 * value / whole;
        stops.push(`${colour === "#000000" ? "var(--ink)" : colour} ${begin.toFixed(2)}% ${end.toFixed(2)}%`);
        said.push(`${title(part)} ${words(value)}`);
      }
      const layers = [`linear-gradient(to right, ${stops.join(", ")}, transparent ${end.toFixed(2)}%)`], at = `${(100 * Math.min((limit ?? 0) / whole, 1)).toFixed(2)}%`;
      if (limit) {
        layers.unshift(`linear-gradient(to right, transparent calc(${at} - 2px), var(--ink) calc(${at} - 2px) ${at}, transparent ${at})`);
        said.push(`judged to fit up to ${words(limit)}`);
      }
      put(box, "style", layers.join(", "));
      put(box, "title", said.join(", "));
      put(box, "aria-label", said.join(", "));
    }
  }

  // the charts: those that the page has as the same specification are filled anew
  const named = (rows) => rows.map((one, place) => ({ ...one, name: rows.filter(({ name }) => name === one.name).length > 1 ? `${place + 1}: ${one.name}` : one.name }));
  function draw(rows, chosen, factors) {
    if (shown.against) return;
    const other = rows[shown.beside] === chosen ? undefined : rows[shown.beside];
    if (shown.tab === "time") steps(rows, chosen, other);
    if (shown.tab === "frontier") everyPlan(shown.figures[0], factors);
    if (shown.tab === "timeline") [chosen, other].forEach((one, place) => one && playedOut(["#chart", "#chart-beside"][place], shown.figures[place], factors, shown.timeline[place], place === 0));
    if (shown.tab === "scaling") sizes(shown.figures[0], factors);
    for (const [place, one] of [["#chart", chosen], ["#chart-beside", other]]) {
      const figure = shown.figures[place === "#chart" ? 0 : 1];
      if (!one || !figure) continue;
      if (shown.tab === "memory") capacity(place, figure, shown.stages[place === "#chart" ? 0 : 1], one.limit / shown.limit);
      if (shown.tab === "sensitivity") swings(place, figure, one, shown.sensitivity[place === "#chart" ? 0 : 1], factors);
    }
  }
  // Of memory only what there is of it moves with a slider of it; what is held waits for the server.
  function capacity(place, figure, made, ratio) {
    const { filled, view, staged } = window.costmodelPage;
    redraw(place, figure, { data: figure.data, layout: filled(view.charts.stages.layout, staged(made, made.limit * ratio)) });
  }
  // The first micro-batches of a plan, played by the kernel of timelines; orders that come packed take a moment.
  function playedOut(place, figure, factors, { plan, more }, first) {
    const { filled, view, pipeline, bubbleOf, timelineOf, seconds } = window.costmodelPage, moved = first && Object.keys(factors).length > 0, { orders } = shown;
    const play = (model) => timelineOf(model, orders)(plan), asked = shown;
    const both = [play(scaledModel(quantities(factors))), moved ? play(before) : null];
    const drawn = ([got, was]) => {
      if (asked !== shown || got.error) return;
      const [made] = pipeline(got, was, view, false, Infinity, view.series.held.length), layout = filled(view.charts.timeline, made);
      layout.layout.title.text = `${got.name}: ${got.ranks} ranks, ${got.micro_batches.toLocaleString("en")} micro-batches, ${seconds(got.total)}, bubble ${(100 * bubbleOf(got, view)).toFixed(1)} %${more}`;
      redraw(place, figure, layout);
    };
    if (both.some((one) => one instanceof Promise)) Promise.all(both).then(drawn); else drawn(both);
  }
  // Each quantity over its interval, under the sliders and without them.
  function swings(place, figure, one, ranges, factors) {
    const { filled, view, tornado, changeOf, seconds } = window.costmodelPage, now = quantities(factors), moved = Object.keys(factors).length > 0;
    const taken = (factors) => scaledModel(factors).evaluate(one.plan).step_time_s;
    const ends = (given, { quantity, factors: [low, high], most, whatever }) => {
      const at = given[quantity] ?? 1;
      return whatever ? [low, max(high, at)] : [low, high].map((factor) => Math.min(at * factor, most ?? Infinity));
    };
    const ghost = place === "#chart" && moved, still = taken({}), rows = ranges.map((row) => {
      const { quantity, name, source } = row, reached = ends(now, row), times = reached.map((factor) => taken({ ...now, [quantity]: factor }));
      const texts = times.map((time, end) => `${name} × ${Number((reached[end] / (now[quantity] ?? 1)).toPrecision(3))}: ${seconds(time)} a step<br>${source}`);
      return { quantity, name, times, texts, before: ghost ? ends({}, row).map((factor) => changeOf(taken({ [quantity]: factor }), still)) : null };
    });
    redraw(place, figure, filled(view.charts.sensitivity, tornado(`Sensitivity of ${seconds(one.step_time_s)} a step, each quantity over its own 90 % interval`, one.name, rows, one.step_time_s, view.series.ends)));
  }
  // What many plans take under a model: of each but once what is the plan's own.
  function pricedBy(model, plans) {
    const own = model.modelOf(model.asked), prepared = model.prepared(plans, own);
    return (now) => now.steps(prepared, own, now.asked);
  }
  function drawnPlans(made) {
    made.plans ??= Array.from({ length: made.count }, (_, row) => Object.fromEntries(Object.entries(made.columns).map(([name, { values, index }]) => [name, values[index ? index[row] : 0]])));
    made.before ??= pricedBy(before, made.plans)(before);
  }
  // The plans that are drawn, wherever they are now; those that came to lead are the server's to find.
  function everyPlan(figure, factors) {
    const { filled, view, frontier, planLabel } = window.costmodelPage, made = shown.frontier, limit = scaledLimit(factors);
    const scales = quantities(factors), model = scaledModel(scales), names = (row) => (made.names ??= [])[row] ??= planLabel({ ...before.asked, ...made.plans[row] });
    const key = JSON.stringify(Object.entries(scales).filter(([name]) => name.startsWith("model.")));
    drawnPlans(made);
    if (made.key !== key) Object.assign(made, { key, priced: pricedBy(model, made.plans) });
    const found = made.priced(model);
    const looks = { ...view, legal: made.legal, titles: { frontier: made.title } };
    redraw("#chart", figure, filled(view.charts.frontier, frontier({ ...found, limit }, Object.keys(factors).length ? made.before : null, names, looks)));
  }
  function sizes(figure, factors) {
    const { filled, view, scaled, planLabel } = window.costmodelPage, made = shown.scaling, limit = scaledLimit(factors);
    const priced = (model, points, most) => points.flatMap(({ plan, error, ...one }) => {
      if (!plan) return [one];
      const { step_time_s: time, peak_memory_bytes: bytes } = model.evaluate(plan);
      return time && bytes <= most ? [{ ...one, step_time_s: time, low: time * Math.exp(given.shift - error), high: time * Math.exp(given.shift + error), name: planLabel({ ...before.asked, ...plan }) }] : [];
    });
    const was = Object.keys(factors).length ? made.before.map((points) => priced(before, points, Infinity)) : null;
    const model = scaledModel(quantities(factors)), lines = made.now.map((points) => priced(model, points, limit));
    if (lines.some((points) => points.some((one) => one.step_time_s))) redraw("#chart", figure, filled(view.charts.scaling, scaled(lines, was, before.asked.seq_len, made.heading, view)));
  }
  const scaledLimit = (factors) => given.margin * before.asked["device.memory"] * (factors.memory ?? 1);
  function steps(rows, chosen, other) {
    const { view, filled, breakdown, fall } = window.costmodelPage, looks = { ...view, titles: given.titles, shift: given.shift };
    const ranked = rows.slice(0, shown.ranked);
    const side = named(other ? [chosen, other] : [chosen, ...ranked.filter((one) => one !== chosen)].slice(0, shown.side));
    const ghosts = other ? side.map((one) => ({ ...one, before: null })) : side;
    redraw("#chart", shown.figures[0], filled(view.charts.time, breakdown(ghosts, looks)));
    if (shown.figures[1]) redraw("#chart-beside", shown.figures[1], filled(view.charts.difference, fall(...side, looks)));
  }
  function redraw(place, figure, made) {
    if (!figure) return;
    const layout = structuredClone(figure.layout);
    for (const axis of ["xaxis", "yaxis"]) for (const name of ["range", "tickvals", "ticktext"]) if (made.layout[axis][name]) layout[axis][name] = made.layout[axis][name];
    for (const axis of ["xaxis", "yaxis"]) if (made.layout[axis].title) layout[axis].title.text = made.layout[axis].title.text;
    if (layout.yaxis.ticktext) layout.yaxis.ticktext = window.costmodelPage.firstLines(layout.yaxis.ticktext);
    for (const name of ["shapes", "annotations"]) if (made.layout[name]) layout[name] = made.layout[name];
    const heading = find(`${place.replace("chart", "heading")} h2`);
    if (heading) write(textOf(heading), made.layout.title.text.replace("<br><sub>", ". ").replace("</sub>", "").replaceAll("<br>", " "));
    const slim = window.costmodelPage.slim({ data: made.data, layout }, true);
    plot(place, slim.data, slim.layout);
  }
  function plot(place, data, layout) {
    const graph = find(`${place} .js-plotly-plot`);
    window.costmodelPage.keyed(find(".legend", find(place).parentElement), data);
    if (graph && window.Plotly) window.Plotly.react(graph, data, layout); // with another configuration it would be made anew
  }

  window.costmodelLive = {
    learn, restore, back, follow, priced, sliderText,
    /** Whether the numbers of the question are there. */
    get ready() { return Boolean(given && window.costmodelPage); },
    /** Remember what an answer shows. */
    answered(answer) { shown = answer; followed = false; warm(); },
  };
})();
