/** Takes the one-time code of a sign-in link, or says how to get a fresh link. The code leaves the address at once. */
import { ApiError, api } from "../api.js";
import { t } from "../i18n/index.js";
import { delegate, h, patch } from "../widgets/dom.js";
import { problemLine } from "../widgets/parts.js";

/**
 * @param {HTMLElement} host
 * @param {string} code
 * @param {import("../router.js").Shell} shell
 * @returns {import("../router.js").View}
 */
export function signinView(host, code, shell) {
  let problem = /** @type {any} */ (null),
    waiting = code !== "";
  const draw = () => {
    patch(host, [
      h(
        "div",
        { class: "card empty signin" },
        h("h1", {}, t("signin")),
        problemLine(problem),
        waiting
          ? h("p", { class: "soft", role: "status" }, t("signin.waiting"))
          : h(
              "div",
              { class: "stack" },
              h("p", { class: "soft" }, t("signin.how")),
              h("pre", {}, "python -m server signin"),
              h("p", { class: "soft" }, t("signin.demo")),
              h(
                "form",
                { class: "bar" },
                h("input", {
                  class: "input",
                  name: "code",
                  "aria-label": t("signin.code"),
                  placeholder: t("signin.code"),
                  autocomplete: "off",
                }),
                h("button", { class: "btn primary", type: "submit" }, t("signin.go")),
              ),
            ),
      ),
    ]);
    shell.title(t("signin"), 0, false);
  };
  const send = async (/** @type {string} */ given) => {
    waiting = true;
    problem = null;
    draw();
    try {
      await api.signIn(given);
      await shell.signedIn();
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      waiting = false;
      problem = error.status === 401 ? { detail: t("signin.used"), fix: "" } : { detail: error.detail, fix: error.fix };
      draw();
    }
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    const typed = /** @type {HTMLInputElement} */ (host.querySelector("input[name=code]")).value.trim();
    // A whole link may be pasted: the code is what follows the hash.
    if (typed) void send(typed.slice(typed.lastIndexOf("#") + 1));
  };
  host.addEventListener("submit", submit);
  const quiet = delegate(host, {});
  draw();
  if (code) {
    history.replaceState(null, "", "/signin");
    void send(code);
  }
  return {
    changed: () => {},
    restyle: draw,
    keys: {},
    close() {
      quiet();
      host.removeEventListener("submit", submit);
      host.replaceChildren();
    },
  };
}
