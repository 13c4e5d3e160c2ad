/** English. Keys are the same as in zh.js; places in {braces} are filled in. */
import common from "./en/common.js";
import detectors from "./en/detectors.js";
import incidents from "./en/incidents.js";
import lists from "./en/lists.js";
import orders from "./en/orders.js";
import pack from "./en/pack.js";
import rules from "./en/rules.js";
import run from "./en/run.js";
import settings from "./en/settings.js";

export default { ...common, ...run, ...orders, ...lists, ...incidents, ...rules, ...detectors, ...pack, ...settings };
