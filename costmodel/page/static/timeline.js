// A step played out pass by pass: orders come from the library's formulas or its tables, times from its formulas, and its kernel plays them.
function makeTimeline(DATA, formulas, kernel) {
  "use strict";
  const {kinds, parameters, turns} = DATA, code = Object.fromEntries(kinds.map((name, place) => [name, place]));
  const call = (name, made) => formulas[name](...parameters[name].map((parameter) => made[parameter]));
  const isSend = (kind) => kind === code["send-forward"] || kind === code["send-backward"];

  // The columns of a table; micro-batches are differences from the event before of the same rank, kind and stage.
  async function unpacked({packed, offsets, layers}) {
    const bytes = Uint8Array.from(atob(packed), (one) => one.charCodeAt(0)), count = offsets.at(-1);
    const buffer = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).arrayBuffer();
    const micro = new Int32Array(buffer, 0, count), stage = new Uint16Array(buffer, 4 * count, count), kind = new Uint8Array(buffer, 6 * count, count);
    const before = new Int32Array(kinds.length * layers.length);
    for (let r = 0; r + 1 < offsets.length; r++) {
      before.fill(0);
      for (let e = offsets[r]; e < offsets[r + 1]; e++) micro[e] = before[kind[e] * layers.length + stage[e]] += micro[e];
    }
    return {offsets, micro, stage, kind};
  }
  // Layers on each stage of the chain, as `costmodel.simulation.playback.stage_layers` has them where no chain is folded.
  function dealt({model, settings, plan}, stages) {
    const chain = {model, settings, plan: {...plan, pipeline: stages, virtual_stages: 1}}, {layers} = model;
    const steps = (upTo) => Array.from({length: stages}, (_, stage) => upTo(stage + 1) - upTo(stage));
    if (settings.framework.balanced_stages > 0) return steps((stage) => stage === 0 ? 0 : stage === stages ? layers : call("dealt_layers", {...chain, stages: stage}));
    const [first, middle, last] = call("stage_layers", chain);
    const even = (number) => { const up = Math.round(number); return up - number === 0.5 && up % 2 ? up - 1 : up; };
    if (Math.min(first, last) < (plan.virtual_stages > 1 ? 0 : 1)) return steps((stage) => even(layers / stages * stage));
    return stages > 1 ? [first, ...Array(stages - 2).fill(middle), last] : [layers];
  }
  // The order of a schedule of turns: receives before the passes that need them, sends after those that make them, a sync of each
  // stage at the end of its rank.
  function inTurn(name, made, micro_batches) {
    const {schedule, pipeline: ranks, virtual_stages: chunks} = made.plan, stages = ranks * chunks, offsets = [0], stage = [], micro = [], kind = [];
    const asked = {schedule, stages: ranks, virtual_stages: chunks, micro_batches}, passes = 2 * call("passes_in_turn", asked);
    const put = (what, where, number) => { kind.push(code[what]); stage.push(where); micro.push(number); };
    for (let rank = 0; rank < ranks; rank++) {
      for (let position = 0; position < passes; position++) {
        const [backward, where, number] = call("pass_in_turn", {...asked, rank, position}), up = ranks > 1 && where > 0, down = ranks > 1 && where < stages - 1;
        if (number >= micro_batches) continue;
        const way = backward ? "backward" : "forward";
        if (backward ? down : up) put(`receive-${way}`, where, number);
        put(way, where, number);
        if (backward ? up : down) put(`send-${way}`, where, number);
      }
      for (let where = rank; where < stages; where += ranks) put("sync", where, 0);
      offsets.push(kind.length);
    }
    return [{name, ranks, layers: dealt(made, stages), syncs: chunks, chunks}, {offsets, micro, stage, kind}];
  }
  // For a send its receive and the reverse; for a sync the number of its group; else -1.
  function matched({micro, stage, kind}) {
    const match = new Int32Array(kind.length).fill(-1), waiting = new Map(), groups = new Map();
    const ends = {[code["send-forward"]]: [0, 0], [code["receive-forward"]]: [0, -1], [code["send-backward"]]: [1, 0], [code["receive-backward"]]: [1, 1]};
    for (let e = 0; e < kind.length; e++) {
      const end = ends[kind[e]];
      if (end) {
        const key = ((stage[e] + end[1]) * 2 + end[0]) * 0x4000000 + micro[e], other = waiting.get(key);
        if (other === undefined) { waiting.set(key, e); continue; }
        match[e] = other;
        match[other] = e;
        waiting.delete(key);
      } else if (kind[e] === code.sync) {
        const key = stage[e] * 0x4000000 + micro[e];
        if (!groups.has(key)) groups.set(key, groups.size);
        match[e] = groups.get(key);
      }
    }
    return match;
  }
  // Everything of an order that stays however long the passes take.
  function known({layers, ranks}, {offsets, micro, stage, kind}) {
    const match = matched({micro, stage, kind}), count = kind.length, rank = new Int32Array(count);
    for (let r = 0; r + 1 < offsets.length; r++) rank.fill(r, offsets[r], offsets[r + 1]);
    // where the times of passes are, who sends on which link, how many ranks a sync waits for
    const place = new Uint16Array(count), link = new Int32Array(count), sends = [];
    let most = 0;
    for (let e = 0; e < count; e++) {
      place[e] = kind[e] * layers.length + stage[e];
      if (isSend(kind[e])) { sends.push(e); link[e] = rank[e] * ranks + rank[match[e]]; }
      if (kind[e] === code.sync) most = Math.max(most, match[e]);
    }
    const groups = new Int32Array(most + 1);
    for (let e = 0; e < count; e++) if (kind[e] === code.sync) groups[match[e]] += 1;
    return {offsets, kind, stage, micro, match, rank, place, link, sends: Int32Array.from(sends), groups};
  }

  function latest(end) {
    let last = 0;
    for (let e = 0; e < end.length; e++) if (end[e] > last) last = end[e];
    return last;
  }
  // When what a rank holds changes [s], and the micro-batches that it holds from then on.
  function held({offsets, kind, start, end}, chunks, rank) {
    const when = [0], count = [0];
    for (let e = offsets[rank]; e < offsets[rank + 1]; e++) {
      const change = kind[e] === code.forward ? 1 : kind[e] === code.backward || kind[e] === code["backward-weight"] ? -1 : 0;
      if (change) { when.push(change > 0 ? start[e] : end[e]); count.push(count.at(-1) + change / chunks); }
    }
    return [when, count];
  }
  // Start and end of every event [s].
  function played(made, step, stretch, micro_batches, order, events) {
    const {layers, ranks, syncs, chunks} = order, {offsets, kind, match, rank, place, link, sends, groups} = events, count = kind.length;
    const times_of = new Map();
    const passes = (layers, first, last, chunks = 1) => {
      const key = `${layers}|${first}|${last}|${chunks}`;
      if (!times_of.has(key)) times_of.set(key, call("stage_pass", {...made, layers, first, last, chunks}));
      return times_of.get(key);
    };
    const own = call("chunks", made);
    const slowest = Math.max(...call("rank_shares", made).filter(([, , , there]) => there).map(([layers, first, last]) => passes(layers, first, last, own).reduce((a, b) => a + b)));
    const {total, bubble, pipeline_exchange: exchange} = step;
    const [sync, each] = call("outside_passes", {total, bubble, exchange, micro_batches, slowest, syncs, chunks});
    const [latency, moving] = call("boundary_parts", made);
    const times = new Float64Array(kinds.length * layers.length);
    layers.forEach((held, at) => {
      // at the end of a valley is what its first rank has besides its first stage: an embedding tied to the head it has once
      const valley = at === layers.length - 1 && made.plan.virtual_stages * ranks < layers.length, front = passes(layers[0], 1, 0);
      const [forward, data, weight] = valley
        ? passes(layers[0] + held, 1, 1, own).map((time, part) => Math.max(time - front[part], 0))
        : passes(held, Number(at === 0), Number(at === layers.length - 1));
      const taken = {forward, "backward-input": data, "backward-weight": weight + each, backward: data + (weight + each), sync};
      for (const [name, time] of Object.entries(taken)) times[code[name] * layers.length + at] = time;
    });
    const duration = new Float64Array(count), occupancy = new Float64Array(count), late = new Float64Array(count), kept = new Float64Array(count);
    for (let e = 0; e < count; e++) duration[e] = stretch * times[place[e]];
    for (const e of sends) { occupancy[e] = stretch * moving; late[e] = stretch * latency; kept[e] = stretch * (1 - made.software.overlap.pipeline) * (moving + latency); }
    const start = new Float64Array(count), end = new Float64Array(count), sending = made.settings.overlap.pipeline > 0 ? kernel.NON_BLOCKING : kernel.BLOCKING;
    const whole = (size) => new Int32Array(size), real = (size) => new Float64Array(size);
    const state = kernel.PipelineState(
      start, end, whole(ranks), real(ranks), real(count).fill(-1), real(0), new Uint8Array(ranks), whole(ranks), whole(groups.length),
      real(groups.length), whole(ranks), real(sends.length + 1), whole(sends.length + 1), whole(2),
    );
    kernel.play(kernel.PipelineProgram(offsets, kind, match, rank, link, duration, occupancy, late, kept, groups), state, real(ranks * ranks), sending);
    return {...events, name: order.name, ranks, micro_batches, duration, start, end, kinds, total: latest(end), held: (one) => held({...events, start, end}, chunks, one)};
  }

  return (model, orders) => {
    const held = new Map();
    // Of a plan: start and end of every event, or {error} in one line; a promise of it where its order isn't unpacked yet.
    return (changes) => {
      const {made, fields, ...refused} = model.checked(changes);
      if (!made) return refused;
      const {schedule, pipeline, virtual_stages} = made.plan, micro_batches = call("micro_batches", made);
      const asked = [schedule, pipeline, virtual_stages, micro_batches].join("|"), table = orders.tables[orders.of[asked]], key = `${asked}|${made.model.layers}`;
      const name = Object.keys(turns).find((one) => turns[one] === schedule);
      const play = ([order, events]) => played(made, model.known(made), model.stretch(made), micro_batches, order, events);
      const keep = (order, columns) => { const one = [order, known(order, columns)]; held.set(key, one); return play(one); };
      if (held.has(key)) return play(held.get(key));
      if (table) return unpacked(table).then((columns) => keep(table, columns));
      if (name && DATA.events * pipeline * virtual_stages * micro_batches <= DATA.most) return keep(...inTurn(name, made, micro_batches));
      return {error: `This page plays no order of passes for ${pipeline} stages of ${virtual_stages} chunks and ${micro_batches.toLocaleString("en")} micro-batches under this schedule: only 1F1B and interleaved, and what its own plans have of others, of no more than a quarter of a million events. costmodel.timeline in Python plays any.`};
    };
  };
}
