// Starts reveal.js at 1280 × 720 pixels, which it scales to the window, and fits each slide to this size.
const WIDTH = 1280;
const HEIGHT = 720;
// No slide gets smaller letters than this share of the usual size.
const SMALLEST = 0.62;

// Reduces the letters and figures of a slide until it is no taller than the window. All sizes in slides.css are in em.
function fit(slide) {
  const [display, position] = [slide.style.display, slide.style.position];
  slide.style.setProperty("display", "block", "important");
  for (let size = 1; slide.scrollHeight > HEIGHT - 4 && size >= SMALLEST; size -= 0.02) {
    slide.style.fontSize = `${size}em`;
  }
  slide.style.display = display;
  slide.style.position = position;
}

Reveal.initialize({
  width: WIDTH,
  height: HEIGHT,
  margin: 0,
  center: false,
  hash: true,
  slideNumber: "c/t",
  transition: "none",
  plugins: [RevealNotes],
}).then(async () => {
  // A font is loaded when it is first shown; the hidden slides are measured before.
  await Promise.all([...document.fonts].map((font) => font.load()));
  const stacks = document.querySelectorAll(".slides > section");
  for (const stack of stacks) {
    const display = stack.style.display;
    stack.style.setProperty("display", "block", "important");
    stack.querySelectorAll("section").forEach(fit);
    stack.style.display = display;
  }
  Reveal.layout();
  document.body.dataset.fitted = "true";
});
