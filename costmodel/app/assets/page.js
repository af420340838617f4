// The page is a function of its link: whatever is chosen goes into the query, and the server answers the query.
(function () {
  "use strict";
  const state = new URLSearchParams(location.search);
  const live = window.costmodelLive;
  let busy = false, waiting = false, sent = 0, asked = null, other = -1, moving = null;
  const find = (selector, within) => (within || document).querySelector(selector);
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));

  // What is asked or looked at is a step that the back button takes back; a slider goes on in the same one.
  function push(step) {
    if (step && state.toString() !== location.search.slice(1)) history.pushState(null, "", address());
    if (busy) { waiting = true; return; }
    const query = state.toString();
    moving = null;
    if (query === push.last) { live.back(); stands(); return; } // moved and moved back
    busy = true;
    changes();
    push.last = query;
    sent = performance.now();
    history.replaceState(null, "", address());
    window.dash_clientside.set_props("query", { data: query });
    document.body.classList.add("asking");
    clearTimeout(rest.timer);
    clearTimeout(push.rescue);
    push.rescue = setTimeout(free, 20000);
  }

  const address = () => { const query = state.toString(); return query ? "?" + query : location.pathname; };
  addEventListener("popstate", () => {
    for (const name of [...state.keys()]) state.delete(name);
    for (const [name, value] of new URLSearchParams(location.search)) state.append(name, value);
    asked = null;
    fill();
    push();
  });

  // An answer goes where it belongs, unless the sliders were moved on by then; `null` parts stay as they are.
  const PARTS = 12, STRIP = 9, FIGURES = [3, 5];
  function answered(answer) {
    const keep = window.dash_clientside.no_update;
    if (!answer || answer.query !== state.toString()) { waiting = true; done(); return Array(PARTS).fill(keep); }
    const strip = answer.parts[STRIP];
    if (strip?.error) live.back();
    else if (strip) {
      live.restore();
      live.answered({ ...strip, figures: FIGURES.map((place) => answer.parts[place]) });
      if (strip.question !== null) live.learn(strip.question);
    }
    const page = window.costmodelPage;
    if (page) for (const place of FIGURES) answer.parts[place] = page.slim(answer.parts[place], true);
    if (page) keys(); else addEventListener("load", keys, { once: true });
    function keys() { FIGURES.forEach((place, at) => { if (answer.parts[place]) window.costmodelPage.keyed(all(".legend")[at], answer.parts[place].data); }); }
    return answer.parts.map((part) => part ?? keep);
  }

  // What a moved slider changes is shown at once; the server is asked when it rests.
  const REST = 150;
  let about = null;
  function factors() {
    const found = {};
    for (const [name, value] of state) if (name.startsWith("x.")) {
      const { least, most } = about[name.slice(2)] || {};
      found[name.slice(2)] = Math.min(Math.max(Number(value), 2 ** least), 2 ** most);
    }
    return found;
  }
  function follow(slider) {
    const since = performance.now(), moved = factors(), name = slider.dataset.slider, one = about[name];
    find("output", slider).textContent = live.sliderText(name, one, name === "price" ? Number(state.get("price")) : moved[name] ?? 1);
    const followed = live.follow(moved, about, Number(state.get("price")));
    document.body.classList.toggle("followed", followed);
    if (followed) requestAnimationFrame(() => setTimeout(() => window.costmodel.followed.push(performance.now() - since), 0));
  }
  function rest(soon) {
    clearTimeout(rest.timer);
    rest.timer = setTimeout(() => push(), soon ? 0 : REST);
  }

  function free() {
    busy = false;
    if (waiting) { waiting = false; push(); }
  }
  function done() {
    clearTimeout(push.rescue);
    document.body.classList.remove("asking");
    free();
    if (busy) return;
    if (moving) follow(moving); // on since this answer was asked for, over which it is written again
    else stands();
  }
  // Between a change and the server's answer to it the page is busy; what stands then is of the link.
  function changes() { find("#answer").setAttribute("aria-busy", "true"); }
  function stands() {
    document.body.classList.remove("followed");
    find("#answer").setAttribute("aria-busy", "false");
  }

  function set(pairs) {
    for (const [name, value] of pairs) {
      if (value === "" || value === null) state.delete(name); else state.set(name, value);
    }
    push(true);
  }

  // the question's form
  function read(element) {
    const value = element.value.trim();
    return [element.name, value === element.dataset.default ? "" : value];
  }
  function fill() {
    for (const element of all("#ask [name]")) {
      element.value = state.has(element.name) ? state.get(element.name) : element.dataset.default;
      if (state.has(element.name)) element.closest("details").open = true;
    }
    for (const slider of all("[data-slider]")) {
      const name = slider.dataset.slider, input = find("input", slider);
      if (name === "price") input.value = state.get("price") || 0;
      else input.value = state.has("x." + name) ? Math.log2(Number(state.get("x." + name))) : 0;
      find(".reset", slider).hidden = Number(input.value) === 0;
    }
    own();
  }
  function own() {
    find("#ask [name=cluster]").disabled = state.has("device"); // a GPU alone stands in its catalogue's nodes
    const line = find("#own");
    line.hidden = !state.has("config");
    find("#ask [name=model]").disabled = state.has("config");
    if (state.has("config")) {
      let name = "your model";
      try { name = JSON.parse(state.get("config")).name || name; } catch (error) { /* the server says what is wrong */ }
      find("span", line).textContent = name;
    }
  }

  document.addEventListener("change", (event) => {
    const element = event.target;
    if (element.id === "launch") {
      window.dash_clientside.set_props("export", { data: { kind: "launch", format: element.value, at: Date.now() } });
      element.value = "";
      return;
    }
    if (element.type === "file") { take[element.parentElement.dataset.drop](element.files); element.value = ""; return; }
    if (element.form && element.form.id === "ask" && element.name) {
      state.delete("row"); state.delete("beside");
      asked = element;
      set([read(element)]);
      own();
      if (!element.value.trim()) element.value = element.dataset.default;
    }
  });
  document.addEventListener("change", (event) => { if (event.target.closest("[data-slider]")) rest(true); });
  document.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("input", (event) => {
    const slider = event.target.closest("[data-slider]");
    if (slider) slide(slider, Number(event.target.value));
  });
  function slide(slider, value) {
    const name = slider.dataset.slider;
    find(".reset", slider).hidden = value === 0;
    const [key, text] = name === "price" ? ["price", value ? String(value) : ""] : ["x." + name, value ? Math.pow(2, value).toPrecision(6) : ""];
    if (text) state.set(key, text); else state.delete(key);
    moving = slider;
    changes();
    if (about) follow(slider);
    rest();
  }

  document.addEventListener("click", (event) => {
    const setter = event.target.closest("[data-set]"), doer = event.target.closest("[data-do]");
    const reset = event.target.closest(".reset");
    if (setter) {
      const pairs = new URLSearchParams(setter.dataset.set);
      const anew = pairs.has("config") || "anew" in setter.dataset; // another question, not another look at this one
      if (anew) { state.delete("row"); state.delete("beside"); }
      for (const [name, plain] of [["row", "0"], ["beside", "-1"], ["tab", "time"], ["down", "0"], ["more", "0"], ["sort", "place"]]) {
        if (pairs.get(name) === plain) pairs.set(name, "");
      }
      if (pairs.has("against")) find("#ask [name=against]").value = "";
      set(pairs);
      if (anew) fill();
    } else if (reset) {
      const slider = reset.closest("[data-slider]"), input = find("input", slider);
      input.value = 0;
      slide(slider, 0);
      input.focus();
    } else if (doer) act(doer);
  });
  function act(button) {
    const what = button.dataset.do;
    if (what === "compare") {
      const comparing = state.has("beside") || state.has("against");
      find("#ask [name=against]").value = "";
      set([["against", ""], ["beside", comparing || other < 0 ? "" : String(other)]]);
    } else if (what === "image") {
      const graph = find("#chart .js-plotly-plot");
      if (graph?.data) window.costmodelPage.saveImage(graph, find("#heading").firstChild?.textContent ?? "", "#fff", `costmodel-${state.get("tab") ?? "time"}`);
    } else if (what === "link") {
      const told = (text) => { button.textContent = text; setTimeout(() => { button.textContent = "Copy link"; }, 1500); };
      if (navigator.clipboard) navigator.clipboard.writeText(location.href).then(() => told("Copied"), () => told("See address"));
      else told("See address");
    } else {
      window.dash_clientside.set_props("export", { data: { kind: what, link: location.href, at: Date.now() } });
    }
  }

  // what had the focus keeps it when it is drawn anew
  let held = null;
  document.addEventListener("focusin", (event) => {
    const one = event.target, name = one.id ? "#" + CSS.escape(one.id) : one.getAttribute("aria-label");
    held = one.closest("#table, #tabs") && name ? (one.id ? name : '[aria-label="' + CSS.escape(name) + '"]') : null;
  });
  function hold() {
    if (!held || document.activeElement !== document.body) return;
    const one = find("#react-entry-point " + held);
    if (one) one.focus({ preventScroll: true });
  }

  // tabs by arrow keys
  document.addEventListener("keydown", (event) => {
    if (event.target.getAttribute("role") !== "tab") return;
    const tabs = all("[role=tab]"), at = tabs.indexOf(event.target);
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const next = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : step ? (at + step + tabs.length) % tabs.length : -1;
    if (next < 0) return;
    event.preventDefault();
    tabs[next].focus();
    tabs[next].click();
  });

  // a model of one's own, and logs of one's own runs, of which the last steps are enough
  const MOST_LOGS = 5, MOST_OF_LOG = 2e5;
  const take = {
    config([file]) {
      if (!file) return;
      if (file.size > 1048576) { wrong("config.json: larger than 1 MiB"); return; }
      file.text().then((text) => window.dash_clientside.set_props("upload", { data: { name: file.name, text } }));
    },
    logs(files) {
      if (files.length > MOST_LOGS) { wrong(`logs: expected at most ${MOST_LOGS} at a time`); return; }
      const read = Array.from(files, async (file) => ({ name: file.name, text: await file.slice(-MOST_OF_LOG).text() }));
      Promise.all(read).then((logs) => window.dash_clientside.set_props("upload", { data: { logs, at: Date.now() } }));
    },
  };
  function wrong(text) { window.dash_clientside.set_props("wrong", { children: text }); }
  for (const kind of ["dragover", "dragleave", "drop"]) {
    document.addEventListener(kind, (event) => {
      const drop = event.target.closest?.("[data-drop]") ?? find("#drop");
      if (!event.dataTransfer || !Array.from(event.dataTransfer.types).includes("Files")) return;
      event.preventDefault();
      drop.classList.toggle("over", kind === "dragover");
      if (kind === "drop") take[drop.dataset.drop](event.dataTransfer.files);
    });
  }

  // the field whose value is refused, until one is taken
  function blame(error) {
    for (const one of all("#ask [aria-invalid]")) one.removeAttribute("aria-invalid");
    if (!error) { asked = null; return; }
    if (asked) asked.setAttribute("aria-invalid", "true");
    requestAnimationFrame(() => find("#wrong").scrollIntoView({ block: "nearest" }));
  }

  function plotted() { window.costmodel.plotted.push(performance.now() - sent); numbers(); }
  // The drawings' numbers, for whoever asks for them.
  function numbers() {
    const box = find("#numbers"), figures = all("#panel .js-plotly-plot").filter((one) => one.offsetParent && one.data);
    if (box.open && window.costmodelPage) window.costmodelPage.tabulate(box.lastElementChild, figures);
  }
  document.addEventListener("toggle", (event) => { if (event.target.id === "numbers") numbers(); }, true);
  function listen() {
    const graph = find("#chart .js-plotly-plot");
    if (!graph || !graph.on) { setTimeout(listen, 20); return; } // Plotly itself is still loading
    graph.removeListener("plotly_afterplot", plotted);
    graph.on("plotly_afterplot", plotted);
  }
  window.costmodel = {
    took: [], // milliseconds from asking to the answer
    plotted: [], // the same to the redrawn chart
    followed: [], // milliseconds from a slider's move to what it changes on the screen
    answered,
    shown(strip) {
      const compare = find("[data-do=compare]"), comparing = state.has("beside") || state.has("against");
      compare.setAttribute("aria-pressed", String(comparing));
      if (strip && !strip.error) { document.body.classList.remove("unanswered"); other = strip.other; about = strip; }
      compare.disabled = other < 0 && !comparing;
      document.body.classList.toggle("stale", Boolean(strip && strip.error)); // what is below answers an earlier question
      find("#answer").setAttribute("aria-disabled", String(Boolean(strip && strip.error)));
      blame(strip && strip.error);
      for (const slider of strip && !strip.error ? all("[data-slider]") : []) {
        const about = strip[slider.dataset.slider];
        slider.hidden = !about.shown;
        if ("most" in about) { find("input", slider).min = about.least; find("input", slider).max = about.most; }
        find("label", slider).textContent = about.label;
        find("output", slider).textContent = about.text;
        find(".reset", slider).setAttribute("aria-label", "reset " + about.label);
      }
      hold();
      listen();
      const since = sent;
      requestAnimationFrame(() => setTimeout(() => window.costmodel.took.push(performance.now() - since), 0));
      done();
    },
    opened(answer) {
      if (!answer) return;
      const { error, ...pairs } = answer;
      if (error) { wrong(error); return; }
      state.delete("row"); state.delete("beside");
      set(Object.entries(pairs));
      own();
    },
  };

  function begin() {
    if (!window.dash_clientside || !window.dash_clientside.set_props || !find("#said")) { setTimeout(begin, 20); return; }
    fill();
    push();
  }
  if (window.matchMedia("(max-width: 860px)").matches) all("#ask details").slice(1).forEach((one) => { one.open = false; });
  begin();
})();
