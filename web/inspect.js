// The page of `keynest inspect`. Its data is the JSON of --json (docs/cli.md). Text of the prompt reaches the page
// through textContent and canvas text alone, never as markup.
"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const $ = (id) => document.getElementById(id);
  const state = { run: 0, head: -1, colour: "kept", token: -1, layer: 0 };
  const count = data.tokens.length;
  const charts = {};

  function make(tag, text, parent) {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  }
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const heat = (strength) => `rgb(${css("--heat")} / ${Math.round(strength * 100)}%)`;
  const percent = (x) => `${(100 * x).toFixed(x > 0 && x < 0.1 ? 1 : 0)}%`;
  const bytes = (n) => (n < 1048576 ? `${(n / 1024).toFixed(0)} KiB` : `${(n / 1048576).toFixed(1)} MiB`);
  const number = (x) => (x === null || x === undefined ? "–" : Number(x).toPrecision(4));
  const series = (i) => ["#0f6cbd", "#d9730d", "#2e9b5b", "#a33fb5", "#c2334d", "#00838f", "#8a6d00", "#5f6b7a"][i % 8];
  const run = () => data.runs[state.run];
  const headOf = (layer, head) => run().heads[layer * data.kv_heads + head];

  /** What a token looks like in a sentence: blanks and control characters made visible. */
  function shown(token) {
    const text = data.texts[token];
    if (text === "") return "(part of the next character)";
    return "“" + text.replace(/\n/g, "↵").replace(/\t/g, "⇥") + "”";
  }
  const describe = (token) => `position ${token} · ${shown(token)}\nkept by ${percent(run().kept_share[token])} of all heads`;

  /** Index of each position in every head's lists, -1 where it is not kept; made once per run. */
  function places(which) {
    if (!which.places) {
      which.places = which.heads.map((head) => {
        const place = new Int32Array(count).fill(-1);
        head.positions.forEach((position, i) => { place[position] = i; });
        return place;
      });
    }
    return which.places;
  }

  // ------------------------------------------------------------------------------------------- text

  const spans = data.texts.map((text, i) => {
    const span = make("span", text, $("text"));
    span.dataset.token = i;
    return span;
  });

  function shadeText() {
    run().kept_share.forEach((share, i) => {
      spans[i].style.backgroundColor = share > 0 ? heat(0.75 * share) : "transparent";
    });
  }

  function showTip(text, x, y) {
    const tip = $("tip");
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(x + 12, innerWidth - box.width - 8))}px`;
    tip.style.top = `${y + 18 + box.height > innerHeight ? y - box.height - 10 : y + 18}px`;
  }
  const hideTip = () => { $("tip").hidden = true; };

  function showHolders() {
    $("holders").replaceChildren();
    if (state.token < 0) return;
    const place = places(run());
    for (let layer = 0; layer < data.layers; ++layer) {
      const row = make("div", undefined, $("holders"));
      make("b", `L${layer}`, row);
      for (let head = 0; head < data.kv_heads; ++head) {
        const kept = place[layer * data.kv_heads + head][state.token] >= 0;
        const cell = make("i", undefined, row);
        cell.className = kept ? "kept" : "";
        cell.title = `layer ${layer}, head ${head}: ${kept ? "kept" : "evicted"}`;
      }
    }
  }

  function choose(token, scroll) {
    if (count === 0) return;
    if (state.token >= 0) spans[state.token].classList.remove("on");
    state.token = Math.max(0, Math.min(count - 1, token));
    spans[state.token].classList.add("on");
    if (scroll) spans[state.token].scrollIntoView({ block: "nearest" });
    $("token").textContent = describe(state.token);
    showHolders();
    drawMap();
  }

  function step(event) {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -50, PageDown: 50, Home: -count, End: count };
    return event.ctrlKey || event.metaKey || event.altKey ? undefined : moves[event.key];
  }

  function bindText() {
    const text = $("text");
    const tokenAt = (event) => event.target.dataset && event.target.dataset.token;
    text.addEventListener("pointermove", (event) => {
      const token = tokenAt(event);
      if (token === undefined) hideTip();
      else showTip(describe(Number(token)), event.clientX, event.clientY);
    });
    text.addEventListener("pointerleave", hideTip);
    text.addEventListener("click", (event) => {
      if (tokenAt(event) !== undefined) choose(Number(tokenAt(event)), false);
    });
    text.addEventListener("keydown", (event) => {
      const by = step(event) ?? { ArrowUp: -10, ArrowDown: 10 }[event.key];
      if (by === undefined) return;
      event.preventDefault();
      choose(state.token + by, true);
    });
  }

  // -------------------------------------------------------------------------------------------- map

  const kLeft = 34, kBottom = 20;
  const rowHeight = Math.max(6, Math.min(18, Math.floor(420 / data.layers)));

  /** 0..1 for every kept entry of a head, by what is chosen as colour; ranks for scores, whose scale is a policy's own. */
  function strengths(head) {
    if (state.colour === "kept") return head.positions.map(() => 1);
    const values = head[state.colour];
    if (state.colour === "cosines") return values.map((x) => 0.12 + 0.88 * (1 - Math.max(-1, Math.min(1, x))) / 2);
    const order = values.map((x, i) => [x, i]).filter((v) => v[0] !== null).sort((a, b) => a[0] - b[0]);
    const out = values.map(() => 0.12);
    order.forEach(([, i], rank) => { out[i] = 0.15 + (0.85 * (rank + 1)) / order.length; });
    return out;
  }

  /** [count] strength of a layer's row: of one head, or the share of all heads. */
  function rowOf(layer) {
    const row = new Float32Array(count);
    const heads = state.head >= 0 ? [state.head] : [...Array(data.kv_heads).keys()];
    for (const h of heads) {
      const head = headOf(layer, h), strength = strengths(head);
      head.positions.forEach((position, i) => { row[position] += strength[i] / heads.length; });
    }
    return row;
  }

  function drawRow(context, layer, width) {
    const row = rowOf(layer);
    // Where columns are narrower than a pixel, a pixel shows the mean of what falls into it.
    for (let x = 0; x < width;) {
      const first = Math.floor((x * count) / width);
      const next = Math.max(first + 1, Math.floor(((x + 1) * count) / width));
      let sum = 0;
      for (let p = first; p < next && p < count; ++p) sum += row[p];
      const until = Math.max(x + 1, Math.ceil(((first + 1) * width) / count));
      const strength = sum / (next - first);
      if (strength > 0) {
        context.fillStyle = heat(Math.min(1, strength));
        context.fillRect(kLeft + x, layer * rowHeight, Math.min(until, width) - x, rowHeight - 1);
      }
      x = until;
    }
  }

  function drawAxes(context, width, height) {
    context.fillStyle = css("--soft");
    context.font = "11px system-ui, 'DejaVu Sans', sans-serif";
    context.textBaseline = "middle";
    context.textAlign = "right";
    const every = Math.ceil(14 / rowHeight);
    for (let layer = 0; layer < data.layers; layer += every) {
      context.fillText(`L${layer}`, kLeft - 6, layer * rowHeight + rowHeight / 2);
    }
    for (let i = 0; i <= 8; ++i) {
      context.textAlign = i === 0 ? "left" : i === 8 ? "right" : "center";
      context.fillText(String(Math.round((i * (count - 1)) / 8)), kLeft + (i * width) / 8, height - kBottom / 2);
    }
  }

  function drawMap() {
    const canvas = $("map"), scale = devicePixelRatio || 1;
    const whole = canvas.parentElement.clientWidth - 12, width = Math.max(50, Math.floor(whole - kLeft));
    const height = data.layers * rowHeight + kBottom;
    canvas.width = Math.round((width + kLeft) * scale);
    canvas.height = Math.round(height * scale);
    canvas.style.height = `${height}px`;
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.fillStyle = css("--empty");
    for (let layer = 0; layer < data.layers; ++layer) context.fillRect(kLeft, layer * rowHeight, width, rowHeight - 1);
    for (let layer = 0; layer < data.layers; ++layer) drawRow(context, layer, width);
    drawAxes(context, width, height);
    if (state.token >= 0) {
      context.strokeStyle = css("--ink");
      context.strokeRect(kLeft + (state.token * width) / count - 0.5, 0, Math.max(2, width / count), height - kBottom);
    }
  }

  function describeCell(token, layer) {
    const lines = [`layer ${layer} · ${describe(token).replace("\n", " · ")}`];
    const heads = state.head >= 0 ? [state.head] : [...Array(data.kv_heads).keys()];
    for (const h of heads) {
      const at = places(run())[layer * data.kv_heads + h][token];
      const head = headOf(layer, h);
      lines.push(at < 0 ? `head ${h}: evicted`
        : `head ${h}: kept, score ${number(head.scores[at])}, cosine ${number(head.cosines[at])}`);
    }
    return lines.join(" · ");
  }

  function bindMap() {
    const canvas = $("map");
    const cellAt = (event) => {
      const box = canvas.getBoundingClientRect();
      const token = Math.floor(((event.clientX - box.left - kLeft) / (box.width - kLeft)) * count);
      const layer = Math.floor((event.clientY - box.top) / rowHeight);
      return token >= 0 && token < count && layer >= 0 && layer < data.layers ? [token, layer] : null;
    };
    canvas.addEventListener("pointermove", (event) => {
      const cell = cellAt(event);
      if (cell) $("cell").textContent = describeCell(...cell);
    });
    canvas.addEventListener("click", (event) => {
      const cell = cellAt(event);
      if (!cell) return;
      state.layer = cell[1];
      choose(cell[0], true);
    });
    canvas.addEventListener("keydown", (event) => {
      const by = step(event), down = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (by === undefined && down === undefined) return;
      event.preventDefault();
      state.layer = Math.max(0, Math.min(data.layers - 1, state.layer + (down || 0)));
      choose(Math.max(0, state.token) + (by || 0), true);
      $("cell").textContent = describeCell(state.token, state.layer);
    });
  }

  const kHints = {
    kept: "Coloured where the head keeps the position; with all heads, by how many do.",
    scores: "The stronger, the higher the entry ranked in its head when the layer last evicted; weakest: it came later.",
    cosines: "The stronger, the less a kept key looks like the mean of its head's keys.",
  };

  // ----------------------------------------------------------------------------------------- charts

  function chart(id, config) {
    if (typeof Chart === "undefined") {
      const box = $(id).parentElement;
      $(id).hidden = true;
      if (!box.querySelector(".notice")) {
        make("p", "Charts are not available: this program was built without Chart.js. The table below has the numbers.", box)
          .className = "notice";
      }
      return;
    }
    if (charts[id]) charts[id].destroy();
    charts[id] = new Chart($(id), config);
  }

  function options(x, y, share) {
    const grid = { color: css("--line") }, ticks = { color: css("--soft") };
    return {
      animation: false, responsive: true, maintainAspectRatio: false, interaction: { mode: "index", intersect: false },
      plugins: { legend: { position: "bottom", labels: { color: css("--ink"), boxWidth: 12, boxHeight: 12 } } },
      scales: {
        x: { title: { display: true, text: x, color: css("--soft") }, grid: { display: false }, ticks },
        y: { title: { display: true, text: y, color: css("--soft") }, grid, beginAtZero: true, max: share ? 1 : undefined,
          ticks: share ? { ...ticks, callback: percent } : ticks },
      },
    };
  }

  function drawBudgets() {
    const layers = [...Array(data.layers).keys()];
    chart("budgets", {
      type: "bar",
      data: {
        labels: layers.map(String),
        datasets: [...Array(data.kv_heads).keys()].map((head) => ({
          label: `head ${head}`, backgroundColor: series(head), data: layers.map((layer) => headOf(layer, head).entries),
        })),
      },
      options: options("layer", "entries"),
    });
  }

  function drawWhere() {
    const bins = Math.min(64, count), edges = [...Array(bins + 1).keys()].map((i) => Math.floor((i * count) / bins));
    const mean = (values, i) => {
      let sum = 0;
      for (let p = edges[i]; p < edges[i + 1]; ++p) sum += values[p];
      return sum / (edges[i + 1] - edges[i]);
    };
    chart("where", {
      type: "line",
      data: {
        labels: edges.slice(0, bins).map(String),
        datasets: data.runs.map((each, i) => ({
          label: each.policy, borderColor: series(i), backgroundColor: series(i), pointRadius: 0, tension: 0.2,
          borderWidth: i === state.run ? 3 : 1.5, data: edges.slice(0, bins).map((_, bin) => mean(each.kept_share, bin)),
        })),
      },
      options: options("position", "share of heads", true),
    });
  }

  // ------------------------------------------------------------------------------- tiles and table

  function drawTiles() {
    const entries = run().heads.reduce((sum, head) => sum + head.entries, 0);
    const all = count * run().heads.length;
    const tiles = [["Tokens in the prompt", String(count)],
      ["Budget per layer and head", run().budget > 0 ? String(run().budget) : "none"],
      ["Entries kept", `${entries} (${percent(all ? entries / all : 0)})`],
      ["Cache", `${bytes(run().cache_bytes)} of ${bytes(run().full_bytes)}`],
      ["Tokens no head keeps", String(run().kept_share.filter((share) => share === 0).length)]];
    $("tiles").replaceChildren();
    for (const [name, value] of tiles) {
      const tile = make("div", undefined, $("tiles"));
      make("dt", name, tile);
      make("dd", value, tile);
    }
  }

  /** Least and most of some numbers, as text; dashes where there are none. */
  function ends(values) {
    if (values.length === 0) return ["–", "–"];
    return [Math.min, Math.max].map((pick) => number(values.reduce((a, b) => pick(a, b))));
  }

  function drawNumbers() {
    const table = $("numbers");
    table.replaceChildren();
    const top = make("tr", undefined, make("thead", undefined, table));
    for (const name of ["layer", "KV head", "entries", "lowest score", "highest score", "lowest cosine", "highest cosine", "anchor length",
      "cosine to the other heads' anchors"]) {
      make("th", name, top).scope = "col";
    }
    const body = make("tbody", undefined, table);
    for (const head of run().heads) {
      const scores = head.scores.filter((x) => x !== null);
      const others = run().anchor_cosines[head.layer][head.kv_head].filter((_, i) => i !== head.kv_head);
      const row = make("tr", undefined, body);
      for (const value of [head.layer, head.kv_head, head.entries, ...ends(scores), ...ends(head.cosines),
        number(head.anchor_length), others.map(number).join("  ")]) {
        make("td", String(value), row);
      }
    }
  }

  // -------------------------------------------------------------------------------------- the whole

  function draw() {
    drawTiles();
    shadeText();
    if (state.token >= 0) $("token").textContent = describe(state.token);
    showHolders();
    $("map-hint").textContent = kHints[state.colour];
    drawMap();
    drawBudgets();
    drawWhere();
    drawNumbers();
  }

  function declarePolicies() {
    data.runs.forEach((each, i) => {
      const label = make("label", undefined, $("policies"));
      const input = make("input", undefined, label);
      Object.assign(input, { type: "radio", name: "policy", value: String(i), checked: i === 0 });
      label.append(each.policy);
      input.addEventListener("change", () => { state.run = i; draw(); });
    });
  }

  function declareHeads() {
    const select = $("head");
    make("option", "all", select).value = "-1";
    for (let head = 0; head < data.kv_heads; ++head) make("option", String(head), select).value = String(head);
    select.addEventListener("change", () => { state.head = Number(select.value); drawMap(); });
    $("colour").addEventListener("change", () => { state.colour = $("colour").value; draw(); });
  }

  const title = data.name || data.model;
  document.title = `${title} – keynest inspect`;
  $("about").textContent = `${title} · ${data.layers} layers × ${data.kv_heads} KV heads · block ${data.block}`;
  declarePolicies();
  declareHeads();
  bindText();
  bindMap();
  draw();
  addEventListener("resize", drawMap);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
