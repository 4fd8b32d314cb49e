// One slide at a time. Arrow keys, space, page keys or a click turn the page; the address keeps the place.
const slides = [...document.querySelectorAll("section")];

function place() {
  return Math.min(Math.max(Number(location.hash.slice(1)) || 1, 1), slides.length) - 1;
}

function show() {
  slides.forEach((slide, i) => slide.classList.toggle("shown", i === place()));
}

function turn(by) {
  location.hash = Math.min(Math.max(place() + by, 0), slides.length - 1) + 1;
}

const steps = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1, PageUp: -1 };
addEventListener("keydown", (event) => {
  if (event.key in steps) {
    event.preventDefault();
    turn(steps[event.key]);
  }
});
addEventListener("click", (event) => event.target.closest("a") || turn(event.clientX < innerWidth / 4 ? -1 : 1));
addEventListener("hashchange", show);

// Hide slides only when all mathematics has been set, which needs to see them.
const ready = window.MathJax && MathJax.startup ? MathJax.startup.promise : Promise.resolve();
ready.then(() => {
  document.body.classList.add("deck");
  show();
});
