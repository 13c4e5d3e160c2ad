// Runs before the first paint, so that a remembered dark page never flashes white. The rest of the page is modules.
(function () {
  /** @type {{ theme?: string }} */
  let kept = {};
  try {
    kept = JSON.parse(localStorage.getItem("lossguard") || "{}");
  } catch {
    /* no memory, no harm */
  }
  const dark = window.matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.dataset.theme = kept.theme || (dark ? "dark" : "light");
})();
