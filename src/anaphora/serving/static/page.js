"use strict";
// Everything a server sends is shown as text, never as markup.
const at = (id) => document.getElementById(id);
const text = (tag, content) => Object.assign(document.createElement(tag), { textContent: content });
at("token").value = new URLSearchParams(location.hash.slice(1)).get("token") || "";

async function ask(path, options = {}) {
  const headers = { ...(options.headers || {}) };
  if (at("token").value) headers.authorization = `Bearer ${at("token").value}`;
  const response = await fetch(path, { ...options, headers });
  const body = await response.text();
  let found;
  try { found = JSON.parse(body); } catch { found = { error: body }; }
  return { status: response.status, found };
}

let runs = [];
const chosen = () => runs.find((run) => run.name === at("run").value);

async function showRuns() {
  const { status, found } = await ask("/runs");
  if (status !== 200) { at("answer").textContent = found.error; return; }
  runs = found.runs;
  at("run").replaceChildren(...runs.map((run) => text("option", run.name)));
  at("answer").textContent = "";
  showRun();
}

function showRun() {
  const run = chosen();
  if (!run) return;
  at("about").textContent = `${run.task}, ${run.model}; options: ${run.options.join(", ")}`;
  at("question-row").hidden = run.input !== "question";
}

function given(run) {
  const typed = at("input").value;
  return run.input === "text" || run.input === "words" ? typed : JSON.parse(typed);
}

async function predict() {
  const run = chosen();
  if (!run) return;
  const query = new URLSearchParams(at("options").value);
  if (at("details").checked) query.set("details", "true");
  const path = `/runs/${encodeURIComponent(run.name)}/predict?${query}`;
  const file = at("file").files[0];
  at("answer").textContent = "…";
  try {
    let options = { method: "POST" };
    if (file) {
      options.body = new FormData();
      options.body.append("inputs", file);
      if (run.input === "question") options.body.append("question", at("question").value);
    } else {
      options.headers = { "content-type": "application/json" };
      options.body = JSON.stringify({ inputs: [given(run)] });
    }
    const { found } = await ask(path, options);
    at("answer").textContent = JSON.stringify(found, null, 2);
  } catch (error) {
    at("answer").textContent = String(error);
  }
}

async function showOperations() {
  const { status, found } = await ask("/openapi.json");
  if (status !== 200) { at("operations").replaceChildren(text("p", found.error)); return; }
  const schemas = found.components.schemas;
  const expanded = (schema) => schema && schema.$ref ? schemas[schema.$ref.split("/").pop()] : schema;
  const shown = [];
  for (const [path, methods] of Object.entries(found.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const box = document.createElement("details");
      const head = document.createElement("summary");
      head.append(text("code", `${method.toUpperCase()} ${path}`), ` ${operation.summary}`);
      box.append(head);
      const body = operation.requestBody && operation.requestBody.content["application/json"];
      const answer = operation.responses["200"].content;
      if (body) box.append(text("p", "Body"), text("pre", JSON.stringify(expanded(body.schema), null, 2)));
      for (const [media, one] of Object.entries(answer || {})) {
        box.append(text("p", `Answer (${media})`));
        if (one.schema) box.append(text("pre", JSON.stringify(expanded(one.schema), null, 2)));
      }
      shown.push(box);
    }
  }
  at("operations").replaceChildren(...shown);
}

if (document.body.dataset.page === "try") {
  at("token").addEventListener("change", showRuns);
  at("run").addEventListener("change", showRun);
  at("send").addEventListener("click", predict);
  showRuns();
} else {
  at("token").addEventListener("change", showOperations);
  showOperations();
}
