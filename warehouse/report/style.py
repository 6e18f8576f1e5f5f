"""The page's style sheet: system fonts, two colour schemes, tables that scroll in their own box."""

from __future__ import annotations

from warehouse.report.display.markup import Markup

STYLE = Markup("""
:root {
  color-scheme: light dark; --bg:#fbfbf9; --card:#fff; --ink:#1d2126; --soft:#5c6670; --rule:#dfe2e0;
  --accent:#0b6e5f; --ok:#0b6e5f; --warn:#9a5b00; --bad:#b3261e; --warnbg:#fff4df; --c0:#8b949c; --c1:#0b6e5f;
  --c2:#c2571a; --c3:#8a4f9e; --c4:#2f6fb3; --c5:#b0307a; --c6:#6d7a12; --c7:#1796a8; --c8:#555;
}
@media (prefers-color-scheme: dark) {
  :root {
    --bg:#14171a; --card:#1b1f23; --ink:#e6e8ea; --soft:#9aa4ad; --rule:#31373d; --accent:#4cc2ac;
    --ok:#4cc2ac; --warn:#e8ae53; --bad:#ff8a80; --warnbg:#2b2415; --c0:#8a939b; --c1:#3fb8a2; --c2:#ee9458;
    --c3:#c190d6; --c4:#74a9e6; --c5:#ec7fb8; --c6:#b5c24e; --c7:#56c5d6; --c8:#aaa;
  }
}
* { box-sizing: border-box; }
body {
  margin:0; background:var(--bg); color:var(--ink); font:16px/1.55 system-ui,sans-serif;
  -webkit-text-size-adjust:100%;
}
main, header, footer { max-width:1100px; margin:0 auto; padding:0 20px; }
header { padding-top:36px; }
.brand { color:var(--soft); font-size:14px; letter-spacing:.02em; margin:0 0 20px; } .brand b { color:var(--accent); }
h1 {
  font-size:clamp(24px,4.4vw,36px); line-height:1.2; letter-spacing:-.015em; margin:0 0 10px; max-width:24em;
  text-wrap:balance;
}
h1 small { display:block; font-size:15px; font-weight:500; letter-spacing:0; color:var(--soft); margin-bottom:6px; }
.evidence { font-size:18px; max-width:46em; margin:0 0 26px; }
.caveat {
  background:var(--warnbg); border-left:3px solid var(--warn); padding:10px 14px; max-width:52em;
  margin:0 0 22px; font-size:15px;
}
nav { font-size:14px; color:var(--soft); margin:0 0 8px; }
nav a { margin-right:14px; white-space:nowrap; display:inline-block; padding:3px 0; }
a { color:var(--accent); text-decoration:none; } a:hover { text-decoration:underline; }
section { margin:44px 0 0; }
h2 { font-size:22px; letter-spacing:-.01em; margin:0 0 4px; }
h3 { font-size:16px; margin:22px 0 6px; }
p.lead { color:var(--soft); margin:0 0 14px; max-width:50em; }
.scroll {
  overflow-x:auto; border:1px solid var(--rule); border-radius:8px; background:var(--card); margin:0 0 14px;
}
.scroll:focus-visible { outline:2px solid var(--accent); }
table {
  border-collapse:separate; border-spacing:0; width:100%; font-size:14px; line-height:20px;
  font-variant-numeric:tabular-nums;
}
th, td {
  padding:7px 12px; text-align:left; white-space:nowrap; border-bottom:1px solid var(--rule);
  vertical-align:top;
}
tbody tr:last-child > * { border-bottom:0; }
thead th { font-weight:600; color:var(--soft); font-size:13px; }
td.n, th.n { text-align:right; }
td.wrap { white-space:normal; min-width:20em; max-width:44em; overflow-wrap:anywhere; }
td.short { white-space:normal; }
p.signs { font-size:13px; color:var(--soft); margin:-8px 0 14px; }
tbody th small { font-size:12px; font-weight:400; color:var(--soft); margin-left:.7em; }
tbody td small { display:block; font-size:12px; color:var(--warn); white-space:normal; min-width:11em; }
tbody th {
  font-weight:600; position:sticky; left:0; background:var(--card); white-space:normal; min-width:min(16em,42vw);
}
.ok { color:var(--ok); } .suspect { color:var(--warn); } .rejected { color:var(--bad); }
.ok, .suspect, .rejected { font-weight:600; }
.plots {
  display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr)); gap:16px;
  align-items:start; margin:0 0 16px;
}
figure {
  margin:0; background:var(--card); border:1px solid var(--rule); border-radius:8px; padding:14px 14px 8px;
  min-width:0;
}
figcaption { font-size:14px; color:var(--soft); margin:0 0 8px; } figcaption b { color:var(--ink); }
svg { display:block; width:100%; height:auto; max-width:420px; margin:0 auto; }
svg text { font:11px system-ui,sans-serif; fill:var(--ink); }
svg .axis { fill:var(--soft); font-size:10px; }
svg .name { paint-order:stroke; stroke:var(--card); stroke-width:3px; stroke-linejoin:round; }
svg .value { font-variant-numeric:tabular-nums; paint-order:stroke; stroke:var(--card); stroke-width:3px; }
svg .end { text-anchor:end; } svg .middle { text-anchor:middle; }
svg .grid { stroke:var(--rule); } svg .whisker { stroke:var(--ink); stroke-width:1.6; }
svg .lead { stroke:var(--rule); } svg .one { stroke:var(--soft); }
svg .bound { stroke:var(--bad); stroke-dasharray:4 4; }
svg .flagged { opacity:.45; }
svg .ring { fill:none; stroke:var(--ink); stroke-width:1.6; }
svg .line { fill:none; stroke-width:2; stroke:var(--c); }
svg .theory { stroke:var(--soft); stroke-dasharray:4 4; }
svg .fill { fill:var(--c); }
.c0{--c:var(--c0)} .c1{--c:var(--c1)} .c2{--c:var(--c2)} .c3{--c:var(--c3)} .c4{--c:var(--c4)} .c5{--c:var(--c5)}
.c6{--c:var(--c6)} .c7{--c:var(--c7)} .c8{--c:var(--c8)}
details { border-top:1px solid var(--rule); padding:8px 0; } summary { cursor:pointer; }
details:last-of-type { border-bottom:1px solid var(--rule); }
dl { display:grid; grid-template-columns:minmax(8em,max-content) 1fr; gap:3px 16px; font-size:14px; margin:10px 0; }
dt { color:var(--soft); } dd { margin:0; overflow-wrap:anywhere; }
pre, code { font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace; }
code { overflow-wrap:anywhere; }
pre { white-space:pre-wrap; overflow-wrap:anywhere; margin:6px 0; }
footer { color:var(--soft); font-size:14px; padding:40px 20px 60px; }
@media (max-width:560px) {
  main, header, footer { padding-left:16px; padding-right:16px; }
  .evidence { font-size:16px; }
  th, td { padding:6px 9px; }
  tbody th { min-width:34vw; overflow-wrap:anywhere; }
  tbody th small { display:block; margin-left:0; }
  tbody td small { min-width:7em; }
  dl { grid-template-columns:1fr; gap:0; }
  dd { margin-bottom:6px; }
  td.wrap { min-width:15em; }
}
@media print { .scroll { overflow:visible; } }
""")
