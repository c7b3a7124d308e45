// Without this script everything is there; it only opens, closes and points.
const all = (open) => document.querySelectorAll("details.row, details.aside").forEach((d) => { d.open = open; });
document.getElementById("open").onclick = () => all(true);
document.getElementById("close").onclick = () => all(false);
document.querySelectorAll(".frame").forEach((frame) => {
  const bytes = [...frame.querySelectorAll(".bytes i[data-at]")];
  const fields = [...frame.querySelectorAll("[data-bytes]")].map((dd) => {
    const spans = dd.dataset.bytes.split(" ").map((span) => span.split("-").map(Number));
    return { parts: [dd, dd.previousElementSibling].filter((e) => e && e.tagName !== "H3"), has: (at) => spans.some(([from, to]) => from <= at && at <= to) };
  });
  const light = (chosen, at) => {
    fields.forEach((field) => field.parts.forEach((e) => e.classList.toggle("lit", chosen === field || (at >= 0 && field.has(at)))));
    bytes.forEach((e) => e.classList.toggle("lit", chosen ? chosen.has(+e.dataset.at) : +e.dataset.at === at));
  };
  fields.forEach((field) => field.parts.forEach((e) => {
    e.onpointerenter = e.onclick = () => light(field, -1);
    e.onpointerleave = () => light(null, -1);
  }));
  bytes.forEach((e) => {
    e.onpointerenter = e.onclick = () => light(null, +e.dataset.at);
    e.onpointerleave = () => light(null, -1);
  });
});
