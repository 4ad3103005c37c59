/** The page's looks, light and dark, built on one accent colour. */
export const style = `
:root{color-scheme:light dark;
--paper:#faf8f5;--card:#fff;--ink:#211d1a;--soft:#6d655e;--line:#e8e2da;
--strong:color-mix(in oklab,var(--accent) 82%,#000);--tint:color-mix(in oklab,var(--accent) 10%,var(--card))}
@media (prefers-color-scheme:dark){:root{--paper:#161412;--card:#1f1c1a;--ink:#f2ede7;--soft:#a69c92;--line:#34302c;
--strong:color-mix(in oklab,var(--accent) 72%,#fff);--tint:color-mix(in oklab,var(--accent) 16%,var(--card))}}
*{box-sizing:border-box;margin:0}
html{scroll-behavior:smooth}
@media (prefers-reduced-motion:reduce){html{scroll-behavior:auto}}
body{background:var(--paper);color:var(--ink);font:16px/1.6 ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;
max-width:68rem;margin:0 auto;padding:4.5rem 1.5rem 3rem;overflow-x:hidden}
.glow{position:absolute;inset:0 0 auto;height:32rem;z-index:-1;pointer-events:none;
background:radial-gradient(46rem 22rem at 18% -6rem,color-mix(in oklab,var(--accent) 34%,transparent),transparent 70%),
radial-gradient(34rem 18rem at 88% -4rem,color-mix(in oklab,var(--accent) 18%,transparent),transparent 70%)}
h1,h2{font-family:"Iowan Old Style","Palatino Linotype",Palatino,"Book Antiqua",Georgia,serif;font-weight:600;letter-spacing:-.015em;line-height:1.1;text-wrap:balance}
h1{font-size:clamp(2.6rem,7vw,4.6rem);margin:.9rem 0 .7rem;overflow-wrap:anywhere}
h2{font-size:1.6rem;margin-bottom:1.1rem}
.lead{font-size:1.2rem;color:var(--soft);max-width:38rem}
.badges{display:flex;gap:.5rem;flex-wrap:wrap}
.badge{font-size:.82rem;font-weight:600;padding:.28rem .8rem;border-radius:99px;background:var(--tint);color:var(--strong);border:1px solid color-mix(in oklab,var(--accent) 30%,transparent)}
.badge.quiet{background:none;color:var(--soft);border-color:var(--line);font-weight:500}
.figures{display:flex;gap:2.5rem;margin-top:1.8rem}
.figures div{display:flex;align-items:baseline;gap:.5rem}
.figures dd{font-size:1.9rem;font-weight:650;font-variant-numeric:tabular-nums;letter-spacing:-.02em}
.figures dt{color:var(--soft)}
main{display:grid;grid-template-columns:minmax(0,21rem) minmax(0,1fr);gap:3rem;margin:3.2rem 0 4rem;align-items:start}
.sign{background:var(--card);border:1px solid var(--line);border-radius:1.1rem;padding:1.6rem;position:sticky;top:1.5rem;
box-shadow:0 1px 2px rgb(0 0 0/.04),0 16px 40px -20px rgb(0 0 0/.18)}
form{display:grid;gap:1rem}
label{display:grid;gap:.35rem;font-size:.88rem;font-weight:600;color:var(--soft)}
input,textarea{font:inherit;font-weight:400;color:var(--ink);background:var(--paper);border:1px solid var(--line);border-radius:.65rem;padding:.65rem .8rem;width:100%;resize:vertical}
input::placeholder,textarea::placeholder{color:color-mix(in oklab,var(--soft) 70%,transparent)}
input:focus-visible,textarea:focus-visible,button:focus-visible,a:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
button{font:inherit;font-weight:650;color:var(--on-accent);background:var(--accent);background:color-mix(in oklab,var(--accent) 88%,#000);border:0;border-radius:.65rem;padding:.7rem 1rem;cursor:pointer;transition:filter .15s,transform .15s}
button:hover{filter:brightness(1.08)}button:active{transform:translateY(1px)}
.note{padding:.65rem .85rem;border-radius:.65rem;margin-bottom:1rem;font-size:.93rem}
.note.good{background:color-mix(in oklab,#2e9e5b 16%,var(--card))}.note.bad{background:color-mix(in oklab,#d1453b 16%,var(--card))}
ol{list-style:none;padding:0}
.entries{display:grid;gap:1.1rem}
.entries li{display:grid;grid-template-columns:2.6rem 1fr;gap:.9rem;align-items:start}
.face{display:grid;place-items:center;width:2.6rem;height:2.6rem;border-radius:50%;font-weight:650;color:oklch(.34 .09 var(--hue));background:oklch(.9 .06 var(--hue))}
@media (prefers-color-scheme:dark){.face{color:oklch(.9 .06 var(--hue));background:oklch(.38 .07 var(--hue))}}
.entries article{background:var(--card);border:1px solid var(--line);border-radius:.3rem 1rem 1rem 1rem;padding:.8rem 1.1rem .95rem;min-width:0}
.entries article header{display:flex;justify-content:space-between;gap:1rem;align-items:baseline}
.entries article strong{overflow-wrap:anywhere}
time{font-size:.8rem;color:var(--soft);white-space:nowrap}
.entries p{white-space:pre-line;overflow-wrap:anywhere;margin-top:.15rem}
.empty{color:var(--soft);border:1px dashed var(--line);border-radius:1rem;padding:1.6rem;text-align:center}
.parts{border-top:1px solid var(--line);padding-top:2.4rem}
.parts h2{margin-bottom:.4rem}
.hint{color:var(--soft);max-width:44rem;margin-bottom:1.5rem}
.parts ol{display:grid;grid-template-columns:repeat(auto-fit,minmax(11.5rem,1fr));gap:.9rem}
.parts li{background:var(--card);border:1px solid var(--line);border-radius:.9rem;padding:1rem 1.1rem 1.1rem;min-width:0}
.parts h3{font-size:1rem;display:flex;align-items:center;gap:.5rem}
.parts h3::before{content:"";width:.55rem;height:.55rem;border-radius:50%;background:#2e9e5b;box-shadow:0 0 0 .2rem color-mix(in oklab,#2e9e5b 22%,transparent)}
.parts .away h3::before{background:#d1453b;box-shadow:0 0 0 .2rem color-mix(in oklab,#d1453b 22%,transparent)}
.parts li>p{color:var(--soft);font-size:.88rem;margin-bottom:.7rem}
.parts dl{display:grid;gap:.45rem;font-size:.82rem}
.parts dt{color:var(--soft)}
.parts dd{font-family:ui-monospace,"SF Mono",Menlo,Consolas,monospace;overflow-wrap:anywhere;line-height:1.35;font-size:.78rem}
.parts dd.secret{font-family:inherit;font-style:italic;color:var(--strong)}
.parts dd.secret::before{content:"•••••••• ";letter-spacing:.1em;font-style:normal}
footer{margin-top:2.6rem;color:var(--soft);font-size:.88rem}
a{color:var(--strong);text-underline-offset:.2em}
@media (max-width:48rem){body{padding-top:2.6rem}main{grid-template-columns:1fr;gap:2.4rem}.sign{position:static}}
`;
